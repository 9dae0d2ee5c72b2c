"""What lab 05's checks count: products that the student's code asks for, arrays of trusted runs, stray writes."""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from autograder import checks, show
from autograder.exercises.convolution_oracles import columns, conv


class Products:
    """`matmul` is for the student's code: it counts, and gives every product times `factor`.

    A result that is the right one times `factor` is made of these products alone, so their count is the count.
    """

    def __init__(self, factor: float):
        self.factor, self.calls, self.multiplications, self.operands = factor, 0, 0, 0

    def matmul(self, a, b):
        for operand in (a, b):
            checks.that(
                type(operand) is torch.Tensor and operand.dim() > 0,
                f"matmul got {show.an(show.type_name(operand))}, expected two tensors.",
                got=operand,
            )
        product = torch.matmul(a, b)
        self.calls += 1
        self.multiplications += product.numel() * a.shape[-1]
        self.operands += a.numel() + b.numel()
        return self.factor * product

    def check_used(self, got, right: torch.Tensor, name: str) -> None:
        """The result `got` comes from these products, and is right."""
        checks.that(
            self.calls > 0,
            f"{name} never called matmul: do the products with the function that is passed, matmul(a, b), not with @.",
        )
        why = f"This matmul gives {self.factor:g} times the product: the result must be {self.factor:g} times as large."
        twice = "The transforms went through matmul too: it is for the product of U and V alone. " + why
        elsewhere = "The result does not come from matmul: some product is done in another way. " + why
        checks.close(
            got,
            self.factor * right,
            name=f"{name}(..., matmul=ours)",
            why=why,
            mistakes={elsewhere: right, twice: self._passed(got, right)},
        )

    def _passed(self, got, right: torch.Tensor) -> torch.Tensor:
        """The right result after as many passes through this matmul as its size in `got` tells."""
        ratio = (
            got.abs().max().item() / right.abs().max().item()
            if type(got) is torch.Tensor and got.is_floating_point() and got.numel()
            else 0.0
        )
        passes = round(math.log(ratio, self.factor)) if 1.0 < ratio < math.inf else 0
        return self.factor**passes * right


@dataclass(frozen=True)
class Counted:
    """What a run of an algorithm multiplied, and the arrays that it had beside x, w and y; numbers have 4 bytes."""

    problem: dict  # the letters
    multiplications: int
    least: int  # bytes of x, w and y
    scratch: int  # bytes of the arrays between
    of: str  # what these are
    products: str  # what is multiplied, as a formula

    @property
    def bytes(self) -> int:
        return self.least + 2 * self.scratch

    def words(self, part: str) -> str:
        if part == "multiplications":
            return f"Multiplications: {self.products}."
        return f"Bytes: x, w and y once ({self.least:,}), {self.of} written once and read once (2 · {self.scratch:,})."

    def mistakes(self, part: str) -> dict:
        """Values of known mistakes, and sentences that name them."""
        N, C, K = (self.problem[letter] for letter in "NCK")
        if part == "bytes":
            named = {
                self.bytes // 4: "These are numbers: each has 4 bytes.",
                2 * self.bytes: "These are numbers of 8 bytes: float32 has 4.",
                self.least + self.scratch: "What stands between is counted once: it is written and read.",
                self.least: "The arrays between are missing.",
                2 * self.scratch: "x, w and y are missing: they are moved too.",
            }
        else:
            named = {
                2 * self.multiplications: "This counts the additions too.",
                self.multiplications // N: "This is for one image: N of them are multiplied.",
                self.multiplications // C: "The input channels are missing: every output sums over C of them.",
                self.multiplications // K: "The filters are missing: there are K of them.",
                self.multiplications // 4: "A complex product is four real ones.",
            } | self.problem["mistakes"]
        return {value: sentence for value, sentence in named.items() if value != getattr(self, part)}


def counted(algorithm: str, x, w, stride: int = 1, padding: int = 0) -> Counted:
    """Run an algorithm as far as it takes to see its arrays, and count them."""
    (n, c, _, _), (k, _, r, s) = x.shape, w.shape
    y, padded = conv(x, w, stride, padding), functional.pad(x, (padding,) * 4)
    least, named = 4 * (x.numel() + w.numel() + y.numel()), {}
    if algorithm in ("direct", "im2col", "toeplitz"):
        pairs = int(
            conv(torch.ones_like(padded), torch.ones_like(w), stride).sum()
        )  # every pair adds a 1 to its output
        scratch, of = {
            "direct": (0, "and nothing between"),
            "im2col": (4 * columns(x, r, s, stride, padding).numel(), "the matrix of columns"),
            "toeplitz": ((4 + 8 + 8) * pairs // n, "the non-zeros of T, 4 + 8 + 8 bytes each,"),
        }[algorithm]
        products = "N K P Q outputs, C R S weights each"
        named[y.numel() // k * w[0].numel()] = "The filters are missing: there are K of them."
    elif algorithm.startswith("winograd"):
        m = int(algorithm[-1])
        a = m + 2
        filled = functional.pad(padded, (0, -y.shape[3] % m, 0, -y.shape[2] % m))
        data = filled.unfold(2, a, m).unfold(3, a, m)
        tiles = data.numel() // (c * a * a)
        pairs, scratch = k * data.numel(), 4 * a * a * (k * c + c * tiles + k * tiles)
        of, products = "transformed filters, tiles and products", f"{a}² for each of the tiles, K and C"
        named = {
            k * c * tiles * m * m: "A tile has m² outputs, but (m + 2)² products.",
            k * c * tiles * m * m * 9: "This is the direct way: 9 products for each output.",
            k * c * n * (y.shape[2] // m) * (y.shape[3] // m) * a * a: "Tiles that stick out are tiles too: round up.",
        }
    else:
        size = [1 << (length - 1).bit_length() for length in padded.shape[2:]]
        frequencies = torch.fft.rfft2(padded[0, 0], s=size).numel()
        pairs, scratch = 4 * n * k * c * frequencies, 8 * frequencies * (n * c + k * c + n * k)
        of, products = "the three sets of spectra, 8 bytes a number,", "4 for each frequency, image, K and C"
        named = {
            4
            * n
            * k
            * c
            * size[0]
            * size[1]: "The spectrum of a real image is half: a rows of b // 2 + 1 frequencies.",
            4 * n * k * c * padded.shape[2] * (padded.shape[3] // 2 + 1): "The sizes are powers of two here: a from "
            "H + 2·padding, b from W + 2·padding.",
        }
    problem = {"N": n, "C": c, "K": k, "mistakes": named}
    return Counted(problem, pairs, least, scratch, of, products)


# -------------------------------------------------------------------------------------------------- memory

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
            why="Behind the end of a tensor lies other data: on a GPU nobody stops you.",
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
            f"{spoiled} of the {size} numbers of y are NaN: the kernel read outside of x or w, where NaN lies. Every "
            "load needs a mask, and other=0.0: pixels beyond N P Q, filters beyond K, weights beyond C R S, borders.",
        )
        return y.view(self.shape)
