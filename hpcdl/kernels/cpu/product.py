"""The heart of every matrix product: a tile of results that stays in registers while it runs along the depth.

Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication".
"""

from contextlib import contextmanager

from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from hpcdl.kernels.cpu.vectors import VECTOR_BYTES, WIDE, fused, llvm, load, splat, step, store

ROWS = (12, 4, 1) if WIDE else (6, 2, 1)  # of a tile: the first, with PANEL columns, fill the registers
PANEL = 2  # columns of a tile, in vectors


def _tile_product(rows: int):
    @intrinsic
    def tile_product(typingctx, a, a_row, b, c, c_row, depth, segments, across, a_line, like):
        vector, itemsize = llvm(like.dtype), like.dtype.scalar.bitwidth // 8

        def build(context, builder, signature, arguments):
            a, a_row, b, c, c_row, depth, segments, across, a_line, _ = arguments
            zero = [ir.Constant(vector, None)] * (rows * PANEL)
            with _repeat(builder, segments, [b, *zero]) as (segment, (b, *totals), next_segment):
                line, place = builder.sdiv(segment, across), builder.srem(segment, across)
                start = builder.add(builder.add(a, builder.mul(line, a_line)), _bytes(builder, place, depth, itemsize))
                with _repeat(builder, depth, [start, b, *zero]) as (_, (at_a, at_b, *sums), next_k):
                    sums = _multiply_add(builder, at_a, a_row, at_b, sums)
                    following = _plus(builder, at_a, itemsize), _plus(builder, at_b, PANEL * VECTOR_BYTES)
                    _, b, *sums = next_k([*following, *sums])
                totals = [builder.fadd(total, sum_) for total, sum_ in zip(totals, sums, strict=True)]
                next_segment([b, *totals])
            for n, value in enumerate(totals):
                target = step(builder, c, c_row, n // PANEL)
                store(builder, value, _plus(builder, target, n % PANEL * VECTOR_BYTES))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9, like), build

    return tile_product


def _bytes(builder, count, depth, itemsize: int):
    return builder.mul(builder.mul(count, depth), ir.Constant(depth.type, itemsize))


def _plus(builder, address, offset: int):
    return builder.add(address, ir.Constant(address.type, offset))


@contextmanager
def _repeat(builder, count, initial):
    """A loop of `count` >= 1 rounds that carries values in registers.

    Gives the round's number, its values, and a function that takes the next round's, ends the loop and returns them.
    """
    before, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    phis = [builder.phi(value.type) for value in (count, *initial)]
    for phi, value in zip(phis, (ir.Constant(count.type, 0), *initial), strict=True):
        phi.add_incoming(value, before)

    def again(values):
        following = [_plus(builder, phis[0], 1), *values]
        for phi, value in zip(phis, following, strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", following[0], count), loop, after)
        return values

    yield phis[0], phis[1:], again
    builder.position_at_end(after)


def _multiply_add(builder, a, a_row, b, sums):
    """sums[i, j] + a[i] b[j] at one step of the depth, PANEL sums for each row i."""
    vector = sums[0].type
    fma = fused(builder, vector)
    columns = [load(builder, _plus(builder, b, j * VECTOR_BYTES), vector) for j in range(PANEL)]
    results = []
    for n in range(0, len(sums), PANEL):
        factor = splat(builder, load(builder, step(builder, a, a_row, n // PANEL), vector.element), vector)
        results += [fma(factor, column, value) for column, value in zip(columns, sums[n : n + PANEL], strict=True)]
    return results


_many, _few, _single = (_tile_product(rows) for rows in ROWS)


@njit
def panel_product(a, a_row, rows, b, c, c_row, depth, segments, across, a_line, like):
    """c (rows, PANEL vectors) = a (rows, segments depth) b (segments depth, PANEL vectors).

    A row of `a` is made of segments of `depth` numbers: `across` of them side by side, the next ones `a_line` bytes
    further on. Each is summed by itself, which keeps rounding errors small. Where rows do not fill the last tile, it
    starts earlier and computes some rows again.
    """
    done = 0
    while done < rows:
        if rows - done >= ROWS[0]:
            start, done = done, done + ROWS[0]
            _many(a + start * a_row, a_row, b, c + start * c_row, c_row, depth, segments, across, a_line, like)
        elif rows >= ROWS[1]:
            start, done = min(done, rows - ROWS[1]), done + ROWS[1]
            _few(a + start * a_row, a_row, b, c + start * c_row, c_row, depth, segments, across, a_line, like)
        else:
            _single(a + done * a_row, a_row, b, c + done * c_row, c_row, depth, segments, across, a_line, like)
            done += 1
