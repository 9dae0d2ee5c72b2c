"""What the algorithms multiply and move, counted in runs of them."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from autograder.exercises.convolution.oracles import columns, conv


@dataclass(frozen=True)
class Counted:
    """What a run of an algorithm multiplied, and the arrays that it had next to x, w and y; numbers have 4 bytes."""

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
                self.least + self.scratch: "You count the intermediate arrays once: they are written and read.",
                self.least: "The intermediate arrays are missing.",
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
            k * c * n * (y.shape[2] // m) * (y.shape[3] // m) * a * a: "Tiles at the border count, too: round up.",
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
