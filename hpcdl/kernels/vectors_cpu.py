"""Vector registers for compiled kernels: whole vectors that load, store, add and multiply.

Numba vectorizes simple loops by itself; where a kernel must hold many vectors in registers, this says so. Addresses and
strides are integers, in bytes. `tile_product` is the heart of every matrix product: a tile of results that stays in
registers while it runs along the depth (Goto and van de Geijn 2008, "Anatomy of high-performance matrix
multiplication").
"""

import operator

from llvmlite import binding, ir
from numba import njit
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

_WIDE = binding.get_host_cpu_features().get("avx512f", False)
VECTOR_BYTES = 64 if _WIDE else 32
ROWS = (12, 8, 4) if _WIDE else (6, 4, 2)  # of a tile: with PANEL columns they fill the registers
PANEL = 2  # columns of a tile, in vectors


def lanes(dtype) -> int:
    """How many numbers of a torch dtype a vector holds."""
    return VECTOR_BYTES // dtype.itemsize


class Vector(types.Type):
    """A register of `VECTOR_BYTES`, full of numbers of one type."""

    def __init__(self, scalar):
        self.scalar, self.lanes = scalar, VECTOR_BYTES * 8 // scalar.bitwidth
        super().__init__(name=f"Vector({scalar}, {self.lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, fe_type):
        super().__init__(manager, fe_type, _llvm(fe_type))


def _llvm(vector: Vector) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if vector.scalar.bitwidth == 32 else ir.DoubleType(), vector.lanes)


def _pointer(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


def _load(builder, address, kind):
    value = builder.load(_pointer(builder, address, kind))
    value.align = 4
    return value


def _store(builder, value, address):
    builder.store(value, _pointer(builder, address, value.type)).align = 4


def _step(builder, address, stride, count):
    """`address + count stride`."""
    return builder.add(address, builder.mul(stride, ir.Constant(stride.type, count)))


def _splat(builder, scalar, kind):
    """A vector whose every number is `scalar`."""
    index, undefined = ir.IntType(32), ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(index, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(index, kind.count), [0] * kind.count))


# -- vectors: made, read, written, computed with -----------------------------------------------------------------------


@intrinsic(prefer_literal=True)
def zeros(typingctx, scalar, count):
    """A tuple of `count` (a literal) vectors of zeros, of the type of `scalar`."""
    vector = Vector(scalar)
    result = types.UniTuple(vector, count.literal_value)

    def build(context, builder, signature, arguments):
        return context.make_tuple(builder, result, [ir.Constant(_llvm(vector), None)] * result.count)

    return result(scalar, count), build


@intrinsic
def read(typingctx, address, stride, like):
    """As many vectors as the tuple `like` has, from memory `stride` apart."""

    def build(context, builder, signature, arguments):
        address, stride, _ = arguments
        places = [_step(builder, address, stride, i) for i in range(like.count)]
        return context.make_tuple(builder, like, [_load(builder, place, _llvm(like.dtype)) for place in places])

    return like(types.intp, types.intp, like), build


@intrinsic
def write(typingctx, address, stride, values):
    """A tuple of vectors to memory `stride` apart."""

    def build(context, builder, signature, arguments):
        address, stride, tuple_ = arguments
        for i, value in enumerate(cgutils.unpack_tuple(builder, tuple_, values.count)):
            _store(builder, value, _step(builder, address, stride, i))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, values), build


@intrinsic(prefer_literal=True)
def stack(typingctx, like, count):
    """The address of `count` (a literal) vectors like the first of `like`, on the stack of the calling function."""
    number = ir.Constant(ir.IntType(32), count.literal_value)

    def build(context, builder, signature, arguments):
        memory = cgutils.alloca_once(builder, _llvm(like.dtype), size=number)
        memory.align = VECTOR_BYTES
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.intp(like, count), build


def _arithmetic(python_operator, method):
    @intrinsic
    def compute(typingctx, a, b):
        def build(context, builder, signature, arguments):
            return getattr(builder, method)(*arguments, flags=("contract",))

        return a(a, b), build

    @overload(python_operator)
    def operation(a, b):
        if isinstance(a, Vector) and isinstance(b, Vector):
            return lambda a, b: compute(a, b)
        if isinstance(a, Vector) and isinstance(b, types.Number):
            return lambda a, b: compute(a, broadcast(b, a))
        return None


@intrinsic
def broadcast(typingctx, number, like):
    """A vector of the type of `like`, full of `number`."""

    def build(context, builder, signature, arguments):
        scalar = context.cast(builder, arguments[0], number, like.scalar)
        return _splat(builder, scalar, _llvm(like))

    return like(number, like), build


for _operator, _method in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _arithmetic(_operator, _method)


# -- complex numbers, real and imaginary parts in turn -----------------------------------------------------------------


def _permutation(pick, sign=None):
    """An intrinsic that puts number `pick(i)` at place i, with the sign `sign(i)` if there is one."""

    @intrinsic
    def permute(typingctx, vector):
        kind = _llvm(vector)

        def build(context, builder, signature, arguments):
            places = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [pick(i) for i in range(kind.count)])
            moved = builder.shuffle_vector(arguments[0], ir.Constant(kind, ir.Undefined), places)
            signs = [sign(i) for i in range(kind.count)] if sign else None
            return builder.fmul(moved, ir.Constant(kind, signs)) if sign else moved

        return vector(vector), build

    return permute


real_parts = _permutation(lambda i: i - i % 2)  # a, b -> a, a
imaginary_parts = _permutation(lambda i: i - i % 2 + 1)  # a, b -> b, b
turned = _permutation(lambda i: i ^ 1, lambda i: 1.0 - 2.0 * (i % 2))  # a, b -> b, -a: times -i


@intrinsic
def add_multiples(typingctx, sums, factor, values):
    """`sums[i] + factor values[i]`, for tuples of vectors and one vector."""

    def build(context, builder, signature, arguments):
        fma = _fused(builder, _llvm(factor))
        pairs = zip(*(cgutils.unpack_tuple(builder, arguments[i], sums.count) for i in (0, 2)), strict=True)
        return context.make_tuple(builder, sums, [fma(arguments[1], value, start) for start, value in pairs])

    return sums(sums, factor, values), build


# -- products ----------------------------------------------------------------------------------------------------------


def _tile_product(rows: int):
    @intrinsic
    def tile_product(typingctx, a, a_row, b, c, c_row, depth, like):
        vector = _llvm(like.dtype)

        def build(context, builder, signature, arguments):
            a, a_row, b, c, c_row, depth, _ = arguments
            fma = _fused(builder, vector)
            results = [[ir.Constant(vector, None)] * PANEL for _ in range(rows)]
            results = _along(builder, depth, (a, a_row, b), results, fma, like.dtype.scalar.bitwidth // 8)
            for i, row in enumerate(results):
                place = _step(builder, c, c_row, i)
                for j, value in enumerate(row):
                    _store(builder, value, builder.add(place, ir.Constant(place.type, j * VECTOR_BYTES)))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6, like), build

    return tile_product


def _fused(builder, vector):
    """The multiply-add of LLVM for a vector type."""
    name = f"llvm.fma.v{vector.count}f{32 if vector.element == ir.FloatType() else 64}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    return lambda x, y, z: builder.call(function, [x, y, z])


def _along(builder, depth, operands, start, fma, itemsize):
    """The loop over the depth: results[i][j] += a[i, k] b[k, j], for depth >= 1."""
    a, a_row, b = operands
    integer, vector = a.type, start[0][0].type
    rows = [_step(builder, a, a_row, i) for i in range(0, len(start), 3)]  # the others by addition: few registers
    before, loop, after = builder.block, builder.append_basic_block("depth"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)

    def carried(kind, initial):
        phi = builder.phi(kind)
        phi.add_incoming(initial, before)
        return phi

    def advance(phi, step):
        phi.add_incoming(builder.add(phi, ir.Constant(integer, step)), loop)

    k, at_b, at_rows = (
        carried(integer, ir.Constant(integer, 0)),
        carried(integer, b),
        [carried(integer, r) for r in rows],
    )
    sums = [[carried(vector, value) for value in row] for row in start]
    columns = [_load(builder, builder.add(at_b, ir.Constant(integer, j * VECTOR_BYTES)), vector) for j in range(PANEL)]
    results = []
    for i, row in enumerate(sums):
        scalar = _load(builder, _step(builder, at_rows[i // 3], a_row, i % 3), vector.element)
        factor = _splat(builder, scalar, vector)
        results.append([fma(factor, column, value) for column, value in zip(columns, row, strict=True)])
    for phi in at_rows:
        advance(phi, itemsize)
    advance(at_b, PANEL * VECTOR_BYTES)
    advance(k, 1)
    for phis, values in zip(sums, results, strict=True):
        for phi, value in zip(phis, values, strict=True):
            phi.add_incoming(value, loop)
    more = builder.icmp_signed("<", builder.add(k, ir.Constant(integer, 1)), depth)
    builder.cbranch(more, loop, after)
    builder.position_at_end(after)
    return results


TILE_PRODUCTS = tuple(_tile_product(rows) for rows in ROWS)
_first, _second, _third = TILE_PRODUCTS


@njit
def panel_product(a, a_row, rows, b, c, c_row, depth, like):
    """c (rows, PANEL vectors) = a (rows, depth) b (depth, PANEL vectors), for rows a multiple of the last of `ROWS`."""
    done = 0
    while done < rows:
        left = rows - done
        if left >= ROWS[0]:
            _first(a + done * a_row, a_row, b, c + done * c_row, c_row, depth, like)
            done += ROWS[0]
        elif left >= ROWS[1]:
            _second(a + done * a_row, a_row, b, c + done * c_row, c_row, depth, like)
            done += ROWS[1]
        else:
            _third(a + done * a_row, a_row, b, c + done * c_row, c_row, depth, like)
            done += ROWS[2]
