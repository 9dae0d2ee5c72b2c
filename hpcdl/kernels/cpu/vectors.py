"""Vector registers for compiled kernels: whole vectors that load, store, add and multiply.

Numba vectorizes simple loops by itself; where a kernel must hold many vectors in registers, this says so. Addresses and
strides are integers, in bytes.
"""

import operator

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

WIDE = binding.get_host_cpu_features().get("avx512f", False)
VECTOR_BYTES = 64 if WIDE else 32


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
        super().__init__(manager, fe_type, llvm(fe_type))


def llvm(vector: Vector) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if vector.scalar.bitwidth == 32 else ir.DoubleType(), vector.lanes)


def _pointer(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


def load(builder, address, kind):
    value = builder.load(_pointer(builder, address, kind))
    value.align = 4
    return value


def store(builder, value, address):
    builder.store(value, _pointer(builder, address, value.type)).align = 4


def step(builder, address, stride, count):
    """`address + count stride`."""
    return builder.add(address, builder.mul(stride, ir.Constant(stride.type, count)))


def splat(builder, scalar, kind):
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
        return context.make_tuple(builder, result, [ir.Constant(llvm(vector), None)] * result.count)

    return result(scalar, count), build


@intrinsic
def read(typingctx, address, stride, like):
    """As many vectors as the tuple `like` has, from memory `stride` apart."""

    def build(context, builder, signature, arguments):
        address, stride, _ = arguments
        places = [step(builder, address, stride, i) for i in range(like.count)]
        return context.make_tuple(builder, like, [load(builder, place, llvm(like.dtype)) for place in places])

    return like(types.intp, types.intp, like), build


@intrinsic
def write(typingctx, address, stride, values):
    """A tuple of vectors to memory `stride` apart."""

    def build(context, builder, signature, arguments):
        address, stride, tuple_ = arguments
        for i, value in enumerate(cgutils.unpack_tuple(builder, tuple_, values.count)):
            store(builder, value, step(builder, address, stride, i))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, values), build


@intrinsic(prefer_literal=True)
def stack(typingctx, like, count):
    """The address of `count` (a literal) vectors like the first of `like`, on the stack of the calling function."""
    number = ir.Constant(ir.IntType(32), count.literal_value)

    def build(context, builder, signature, arguments):
        memory = cgutils.alloca_once(builder, llvm(like.dtype), size=number)
        memory.align = VECTOR_BYTES
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.intp(like, count), build


@intrinsic
def prefetch(typingctx, address):
    """Have memory fetched that will be read soon; no harm if it does not exist."""

    def build(context, builder, signature, arguments):
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read_into_second_cache = [ir.Constant(flag, value) for value in (0, 2, 1)]
        builder.call(function, [builder.inttoptr(arguments[0], byte), *to_read_into_second_cache])
        return context.get_dummy_value()

    return types.void(types.intp), build


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
        return splat(builder, scalar, llvm(like))

    return like(number, like), build


for _operator, _method in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _arithmetic(_operator, _method)


def fused(builder, vector):
    """The multiply-add of LLVM for a vector type."""
    name = f"llvm.fma.v{vector.count}f{32 if vector.element == ir.FloatType() else 64}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    return lambda x, y, z: builder.call(function, [x, y, z])


# -- complex numbers, real and imaginary parts in turn -----------------------------------------------------------------


def _permutation(pick, sign=None):
    """An intrinsic that puts number `pick(i)` at place i, with the sign `sign(i)` if there is one."""

    @intrinsic
    def permute(typingctx, vector):
        kind = llvm(vector)

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
        fma = fused(builder, llvm(factor))
        pairs = zip(*(cgutils.unpack_tuple(builder, arguments[i], sums.count) for i in (0, 2)), strict=True)
        return context.make_tuple(builder, sums, [fma(arguments[1], value, start) for start, value in pairs])

    return sums(sums, factor, values), build
