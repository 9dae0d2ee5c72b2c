"""A convolution in Triton. Oracle: torch's, and memory with NaN round every tensor."""

import math

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks import triton_kernels
from autograder.exercises.convolution.drawing import problems
from autograder.exercises.convolution.libraries import LIBRARIES
from autograder.exercises.convolution.oracles import columns, conv
from autograder.exercises.convolution.outputs import check_output

exercise = Exercise(
    "conv_kernel",
    points=15,
    minutes=15,
    functions=("conv_kernel", "launch_in"),
    given=("launch", "launch_in"),
    forbid=LIBRARIES,
    instead="The library's kernels are for comparison: write your own.",
)


def check_kernel(student, rng, sizes, stride: int = 1, padding: int = 0) -> None:
    """The kernel's result, and the memory round it."""
    launched(student, rng, "launched", sizes, stride, padding)


def sixteenths(rng, *shape: int) -> torch.Tensor:
    """Numbers from 1 to 10 in size, of both signs: each is exact in every precision, and so are sums of products."""
    numbers, signs = torch.randint(16, 160, shape, generator=rng), torch.randint(0, 2, shape, generator=rng)
    return (2 * signs - 1) * numbers / 16


def launched(student, rng, harness: str, sizes, stride: int = 1, padding: int = 0) -> tuple["Arena", list]:
    """The memory, where the kernel's result is right, and what else the harness tells."""
    n, c, h, wd, k, r, s = sizes
    x, w = sixteenths(rng, n, c, h, wd), sixteenths(rng, k, c, r, s)
    arena = Arena(x, w, conv(x, w, stride, padding).shape)
    args = arena.memory.clone(), tuple(x.shape), tuple(w.shape), stride, padding
    ((fault, got, *told),) = student.ranks("launch_in", 1, lambda _: args, harness=harness).results
    triton_kernels.compiles(fault, "conv_kernel", "launch_in")
    arena.check_guards(got)
    check_output(
        arena.result(got), x, w, stride, padding, name="y after conv_kernel", extra=blocks(x, w, stride, padding)
    )
    return arena, told


def blocks(x, w, stride: int, padding: int) -> dict:
    """What a kernel gives that takes only some blocks of the sum over (c, r, s), or writes in another order."""
    flat, cols = w.flatten(1), columns(x, w.shape[2], w.shape[3], stride, padding)
    right = conv(x, w, stride, padding)
    shape, last_axis = (
        right.shape,
        "y is written with its channels last: it is (N, K, P, Q), columns next to each other.",
    )
    found = {last_axis: right.permute(0, 2, 3, 1).reshape(shape)}
    if flat.shape[1] <= 16:
        return found
    last = (flat.shape[1] - 1) // 16 * 16
    return found | {
        "Only the first block of the sum over (c, r, s) is there: continue in steps of BLOCK_K until C R S.": (
            (flat[:, :16] @ cols[:, :16]).view(shape)
        ),
        "Only the last block of the sum is left: add to the accumulator, acc += tl.dot(a, b).": (
            (flat[:, last:] @ cols[:, last:]).view(shape)
        ),
    }


@exercise.check(points=4, seconds=20)
def whole_blocks(student, rng):
    "If pixels, filters and weights fill their blocks of 16, one block and several."
    for sizes in ((1, 4, 5, 5, 16, 2, 2), (1, 8, 9, 9, 32, 2, 2)):
        check_kernel(student, rng, sizes)


@exercise.check(points=6, needs="whole_blocks", seconds=20)
def masked_borders(student, rng):
    "Any size: numbers beyond the end are neither read nor written."
    for sizes in ((1, 1, 3, 3, 1, 2, 2), (2, 3, 6, 5, 5, 3, 2), (3, 2, 7, 7, 17, 3, 3)):
        check_kernel(student, rng, sizes)
    images, channels, filters = (int(torch.randint(*ends, (), generator=rng)) for ends in ((2, 4), (2, 4), (17, 24)))
    sizes = images, channels, 5, 4, filters, 2, 2  # no number fills its last block of 16
    in_blocks(accesses_its_own(student, rng, sizes), filters, 4 * 3)


BLOCK = 16


def accesses_its_own(student, rng, sizes, stride: int = 1, padding: int = 0) -> list[torch.Tensor]:
    """Check that every load stays in x and w, even if its number is never used; return where each program writes."""
    arena, (places, written) = launched(student, rng, "reads", sizes, stride, padding)
    start, _ = arena.places["y"]
    outside = sum(
        all(not begin <= start + place < begin + size for begin, size in (arena.places["x"], arena.places["w"]))
        for place in places.tolist()
    )
    checks.that(
        not outside,
        f"The kernel reads {outside} numbers outside of x and w, and uses none of them. On a GPU this can end the "
        "program: every load needs a mask for pixels beyond N P Q, filters beyond K, weights beyond C R S, borders.",
    )
    return written


def in_blocks(written: list[torch.Tensor], filters: int, plane: int) -> None:
    """Check that each program writes a block of y (N, `filters`, numbers in a `plane`): 16 pixels of 16 filters."""
    for places in written:
        image, k, place = places // (filters * plane), places // plane % filters, places % plane
        pixels, of = len((image * plane + place).unique()), len(k.unique())
        checks.that(
            max(pixels, of) <= BLOCK,
            f"One program writes numbers of {pixels} pixels and {of} filters. Each has a block of {BLOCK} pixels of "
            f"{BLOCK} filters: on a GPU all programs run at the same time, and share the work.",
            got=f"{pixels} pixels, {of} filters",
            expected=f"at most {BLOCK} pixels, {BLOCK} filters",
        )


@exercise.check(points=5, needs="whole_blocks", seconds=20)
def kernels_stride_and_padding(student, rng):
    "Stride and padding: pixels beyond the border are zeros, and never read."
    for stride, padding in ((2, 0), (1, 1), (3, 2)):
        accesses_its_own(student, rng, (2, 2, 7, 6, 5, 3, 3), stride, padding)
    for sizes, stride, padding in problems(rng, 2):
        accesses_its_own(student, rng, sizes, stride, padding)


GUARD = 4096  # numbers before, between and after the tensors: further than a slip of some rows
UNWRITTEN = -7.75e9


class Arena:
    """x, w and y in one piece of memory with NaN round them: what is read there shows, and so does what is written."""

    def __init__(self, x, w, shape):
        self.shape, size = tuple(shape), math.prod(shape)
        guard, empty = torch.full((GUARD,), torch.nan), torch.full((size,), UNWRITTEN)
        self.memory = torch.cat([guard, x.flatten(), guard, w.flatten(), guard, empty, guard])
        self.places = {"y": (len(self.memory) - GUARD - size, size)}
        self.places |= {"x": (GUARD, x.numel()), "w": (2 * GUARD + x.numel(), w.numel())}

    def check_guards(self, got) -> None:
        """Nothing but y has changed."""
        checks.that(
            type(got) is torch.Tensor and got.shape == self.memory.shape and got.dtype == self.memory.dtype,
            f"launch_in returned {show.an(show.type_name(got))}, expected the memory: "
            "it comes with the lab, run its cell.",
            got=got,
        )
        start, size = self.places["y"]
        changed = (got.view(torch.int32) != self.memory.view(torch.int32)).nonzero().flatten()
        outside = [i for i in changed.tolist() if not start <= i < start + size]
        checks.that(
            not outside,
            f"The kernel wrote {len(outside)} numbers outside of y{self._where(outside)}. The store needs a "
            "mask: pixels below N P Q, filters below K.",
            why="There is other data beyond the end of a tensor, and a GPU does not check.",
        )

    def _where(self, outside: list[int]) -> str:
        for name in ("x", "w"):
            start, size = self.places[name]
            if any(start <= i < start + size for i in outside):
                return f", into {name}"
        return ", behind its end" if outside and outside[0] > self.places["y"][0] else ", before its start"

    def result(self, got: torch.Tensor) -> torch.Tensor:
        """y, or the failure that says it was not written, or made of what lies outside x and w."""
        start, size = self.places["y"]
        y = got[start : start + size]
        left, spoiled = int((y == UNWRITTEN).sum()), int(y.isnan().sum())
        checks.that(
            not left,
            f"{left} of the {size} numbers of y were never written. Which pixels and filters does program (i, j) have?",
        )
        checks.that(
            not spoiled,
            f"{spoiled} of the {size} numbers of y are NaN: the kernel read outside of x or w, where the memory holds "
            "NaN. Every load needs a mask, and other=0.0: pixels beyond N P Q, filters beyond K, weights beyond C R "
            "S, borders.",
        )
        return y.view(self.shape)
