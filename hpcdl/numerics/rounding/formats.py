"""Number formats as values: fixed point and the small floating-point formats of deep learning.

A format is a set of real numbers. Between two neighbours lies a gap of `quantum(x)`; every multiple of it inside
[min, max] belongs to the format, which is all that rounding needs to know.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LONGEST_WORD = 24  # bits: every code of such a word is a float32


@dataclass(frozen=True)
class Fixed:
    """Fixed point <IL, FL>: the numbers k 2^-FL with -2^(IL-1) <= k 2^-FL <= 2^(IL-1) - 2^-FL, k an integer.

    IL integer bits, the sign among them, and FL fractional bits make a word of WL = IL + FL bits. What lies outside
    saturates: it becomes the nearest end. There is one zero and no infinity; NaN stays NaN while the values are kept
    as float32, and becomes 0 in a word. Raises ValueError for IL < 1, FL < 0, or a word longer than 24 bits.

    Source: Gupta, Agrawal, Gopalakrishnan and Narayanan 2015, "Deep learning with limited numerical precision".
    """

    il: int
    fl: int

    def __post_init__(self):
        for name, bits, least, what in (("il", self.il, 1, "counts the sign bit"), ("fl", self.fl, 0, "counts bits")):
            if not isinstance(bits, int) or bits < least:
                raise ValueError(f"{name} is {bits!r} in Fixed({self.il!r}, {self.fl!r}); it {what}: {least} or more")
        if not 2 <= self.wl <= LONGEST_WORD:
            raise ValueError(
                f"il + fl is {self.wl} in {self}; a word has 2 to {LONGEST_WORD} bits, such as the 16 of Fixed(4, 12)"
            )

    @property
    def wl(self) -> int:
        """Return the word length in bits."""
        return self.il + self.fl

    @property
    def eps(self) -> float:
        """Return the gap 2^-FL between neighbours, everywhere the same."""
        return 2.0**-self.fl

    @property
    def min(self) -> float:
        """Return the smallest number, -2^(IL-1)."""
        return -(2.0 ** (self.il - 1))

    @property
    def max(self) -> float:
        """Return the largest number, 2^(IL-1) - 2^-FL."""
        return -self.min - self.eps

    @property
    def dtype(self) -> torch.dtype:
        """Return the integers that store the words k."""
        return torch.int8 if self.wl <= 8 else torch.int16 if self.wl <= 16 else torch.int32

    @property
    def random_bits(self) -> int:
        """Return the bits that decide a stochastic rounding."""
        return 16

    def quantum(self, x: Tensor) -> Tensor:
        """Return the gap between the neighbours around each `x`, float64."""
        return torch.full_like(x, self.eps, dtype=torch.float64)

    def bounded(self, values: Tensor) -> Tensor:
        """Multiples of the quantum brought into the range: saturated, and without a negative zero."""
        return values.clamp(self.min, self.max) + 0.0


@dataclass(frozen=True)
class Float:
    """A binary floating-point format: 1 sign bit, `exponent_bits`, `mantissa_bits`, with subnormal numbers.

    With bias B = 2^(exponent_bits-1) - 1 the gap around x is 2^(e - mantissa_bits), e = max(floor(log2 |x|), 1 - B).
    What rounds beyond `max` becomes the infinity. A format without one uses its largest exponent for numbers too, all
    but one code, which is NaN; there, what lies beyond `max` saturates, the infinities included. `dtype` stores the
    numbers: BF16 and the others are below, and `Float("E3M2", 3, 2, torch.float16)` is one of your own. Raises
    ValueError for a format with numbers that float32 or `dtype` has not.

    Source: IEEE 754-2019; OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023, conversions in saturating mode.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    dtype: torch.dtype
    has_infinity: bool = True

    def __post_init__(self):
        e, m, most = self.exponent_bits, self.mantissa_bits, 8 if self.has_infinity else 7
        if type(e) is not int or type(m) is not int or not 2 <= e <= most or not 1 <= m <= 22:
            raise ValueError(
                f"{self.name} has {e!r} exponent_bits and {m!r} mantissa_bits; float32 has the numbers of 2 to {most} "
                "and 1 to 22"
            )
        room = torch.finfo(self.dtype)
        if room.max < self.max or room.eps > 2.0**-m or room.tiny * room.eps > 2.0 ** (self.min_exponent - m):
            raise ValueError(f"{self.dtype} has not all numbers of {self.name}; store them in torch.float32")

    def __repr__(self):
        return self.name

    @property
    def min_exponent(self) -> int:
        """Return the exponent of the smallest normal number and of all subnormal ones."""
        return 2 - 2 ** (self.exponent_bits - 1)

    @property
    def max(self) -> float:
        """Return the largest number."""
        bias, ulp = 1 - self.min_exponent, 2.0**-self.mantissa_bits
        return (2 - ulp) * 2.0**bias if self.has_infinity else (2 - 2 * ulp) * 2.0 ** (bias + 1)

    @property
    def min(self) -> float:
        """Return the most negative number."""
        return -self.max

    @property
    def random_bits(self) -> int:
        """Return the bits that decide a stochastic rounding: as many as float32 has that this format has not."""
        return 23 - self.mantissa_bits

    def quantum(self, x: Tensor) -> Tensor:
        """Return the gap between the neighbours around each `x`, float64; beyond `max`, that of the largest numbers."""
        size = x.double().abs().clamp(2.0**self.min_exponent, self.max)
        return torch.exp2((torch.frexp(size).exponent - 1 - self.mantissa_bits).double())

    def bounded(self, values: Tensor) -> Tensor:
        """Multiples of the quantum brought into the format: beyond `max` infinite, or saturated."""
        if not self.has_infinity:
            return values.clamp(self.min, self.max)
        return torch.where(values.abs() > self.max, torch.copysign(torch.full_like(values, math.inf), values), values)


Format = Fixed | Float

BF16 = Float("BF16", 8, 7, torch.bfloat16)
FP16 = Float("FP16", 5, 10, torch.float16)
FP8_E4M3 = Float("FP8_E4M3", 4, 3, torch.float8_e4m3fn, has_infinity=False)
FP8_E5M2 = Float("FP8_E5M2", 5, 2, torch.float8_e5m2)
FLOATS = {fmt.name: fmt for fmt in (BF16, FP16, FP8_E4M3, FP8_E5M2)}


def encode(values: Tensor, fmt: Format) -> Tensor:
    """Return float32 values that belong to a format as it stores them, in `fmt.dtype`; NaN in a word of fixed point is
    0.

    Raises ValueError for another dtype, and in fixed point for values outside [min, max]: `round_nearest` brings them
    into the format.
    """
    if values.dtype != torch.float32:
        raise ValueError(f"values are {values.dtype}; give float32, as round_nearest(x, {fmt}) returns them")
    if isinstance(fmt, Fixed) and bool(((values < fmt.min) | (values > fmt.max)).any()):
        raise ValueError(f"values go beyond {fmt.min} to {fmt.max}, the range of {fmt}; round_nearest(x, fmt) first")
    return stored(values, fmt)


def stored(values: Tensor, fmt: Format) -> Tensor:
    """`encode` without checks, for values that were just rounded."""
    if isinstance(fmt, Fixed):
        return (values / fmt.eps).nan_to_num(0.0).to(fmt.dtype)
    if fmt.dtype == torch.bfloat16:  # a cast keeps these numbers too, but gives NaN other bits on other processors
        return (values.contiguous().view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
    return values.to(fmt.dtype)


def decode(codes: Tensor, fmt: Format) -> Tensor:
    """Return the float32 values of what `encode` stored, exactly; raise ValueError for codes of another dtype."""
    if codes.dtype != fmt.dtype:
        raise ValueError(f"codes are {codes.dtype}; {fmt} is stored in {fmt.dtype}")
    return codes.float() * fmt.eps if isinstance(fmt, Fixed) else codes.float()


def checked(x: Tensor, fmt: Format) -> Tensor:
    """`x` in float32, apart from any graph; raises ValueError where rounding it is undefined, or would happen twice."""
    if not isinstance(fmt, Fixed | Float):
        raise ValueError(f"fmt is {fmt!r}; a format is Fixed(il, fl) or one of {', '.join(FLOATS)}")
    if not isinstance(x, Tensor):
        raise TypeError(f"x is a {type(x).__name__}; tensors are rounded: torch.as_tensor(x, dtype=torch.float32)")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        advice = "x.float() rounds it to float32 first" if x.is_floating_point() else "x.float() makes it one"
        raise ValueError(f"x has dtype {x.dtype}; a tensor of float32 (or 16-bit floats) is rounded: {advice}")
    return x.detach().float()
