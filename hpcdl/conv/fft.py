"""Fourier: correlation in space is a product of spectra, y = F^-1( F(x) * conj(F(w)) ).

With transforms of a x b >= (H + 2 padding) x (W + 2 padding) the circular correlation equals the linear one at every
output that the whole kernel fits, and those are the outputs asked for. For real data the spectrum has b / 2 + 1
columns. At each frequency the sum over channels is a complex matrix product. The cost does not grow with the kernel.
Source: Mathieu, Henaff and LeCun 2014, "Fast training of convolutional networks through FFTs".
"""

import cmath

import torch
from torch.nn.functional import pad

from hpcdl.conv.algorithm import Algorithm, Filters
from hpcdl.conv.direct import by_group, cropped, grouped, padded, padded_shape
from hpcdl.conv.problem import Problem


def power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def radix_2(x: torch.Tensor) -> torch.Tensor:
    """The discrete Fourier transform along the last axis, of 2^i numbers (Cooley and Tukey 1965)."""
    n = x.shape[-1]
    if n == 1:
        return x
    even, odd = radix_2(x[..., ::2]), radix_2(x[..., 1::2])
    turned = odd * torch.tensor([cmath.exp(-2j * cmath.pi * k / n) for k in range(n // 2)], dtype=x.dtype)
    return torch.cat([even + turned, even - turned], -1)


def spectrum(x: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """The right half-plane of the transform of real images, zeros appended up to `size`: (..., a, b / 2 + 1)."""
    a, b = size
    x = pad(x, (0, b - x.shape[-1], 0, a - x.shape[-2])).to(x.dtype.to_complex())
    return radix_2(radix_2(x)[..., : b // 2 + 1].mT).mT


def image(half: torch.Tensor, b: int) -> torch.Tensor:
    """The real images of half spectra, times a b: the inverse transform is the transform of the conjugate, conjugated."""
    columns = radix_2(half.conj().resolve_conj().mT).mT
    mirror = columns[..., 1 : (b + 1) // 2].flip(-1).conj().resolve_conj()
    return radix_2(torch.cat([columns, mirror], -1)).real


def plain(x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Radix-2 transforms of x and w, products per frequency, the inverse transform, every stride-th output."""
    a, b = (power_of_two(n) for n in padded_shape(problem)[2:])
    X = grouped(spectrum(padded(x, problem), (a, b)), problem)
    W = by_group(spectrum(w, (a, b)), problem).conj().resolve_conj()
    Y = (W.permute(3, 4, 0, 1, 2) @ X.permute(3, 4, 1, 2, 0)).permute(4, 2, 3, 0, 1)
    return _outputs(image(Y, b), problem) * (1 / (a * b))


def _outputs(y: torch.Tensor, problem: Problem) -> torch.Tensor:
    step = problem.stride
    rows, columns = (problem.P - 1) * step + 1, (problem.Q - 1) * step + 1
    return y[..., :rows:step, :columns:step].reshape(problem.y_shape)


# -- fast: library transforms of sizes with small factors only ---------------------------------------------------------


def good_size(n: int) -> int:
    """The least 2^i 3^j 5^k from n: transforms of such lengths are quick."""
    while not _smooth(n):
        n += 1
    return n


def _smooth(n: int) -> bool:
    for factor in (2, 3, 5):
        while n % factor == 0:
            n //= factor
    return n == 1


def size_for(problem: Problem) -> tuple[int, int]:
    _, _, height, width = padded_shape(problem)
    return good_size(height), good_size(width)


def forward(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    size = size_for(problem)
    X = grouped(torch.fft.rfft2(padded(x, problem), s=size), problem)
    y = torch.fft.irfft2(torch.einsum("gkcab,ngcab->ngkab", _spectra(filters, size, problem).conj(), X), s=size)
    return _outputs(y.flatten(1, 2), problem)


def _spectra(filters: Filters, size: tuple[int, int], problem: Problem) -> torch.Tensor:
    return by_group(filters.made(("fft", size), lambda w: torch.fft.rfft2(w, s=size)), problem)


def spread(dy: torch.Tensor, problem: Problem) -> torch.Tensor:
    """dy with its pixels `stride` apart, zeros between."""
    step = problem.stride
    if step == 1:
        return dy
    wide = dy.new_zeros(*dy.shape[:2], (problem.P - 1) * step + 1, (problem.Q - 1) * step + 1)
    wide[..., ::step, ::step] = dy
    return wide


def grad_input(dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """dx = F^-1( F(dy) F(w) ), the products summed over k."""
    size = size_for(problem)
    DY = grouped(torch.fft.rfft2(spread(dy, problem), s=size), problem)
    dx = torch.fft.irfft2(torch.einsum("gkcab,ngkab->ngcab", _spectra(filters, size, problem), DY), s=size)
    return cropped(dx.flatten(1, 2), problem)


def grad_weight(dy: torch.Tensor, x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """dw = F^-1( F(x) conj(F(dy)) ), the products summed over n."""
    size = size_for(problem)
    X = grouped(torch.fft.rfft2(padded(x, problem), s=size), problem)
    DY = grouped(torch.fft.rfft2(spread(dy, problem), s=size), problem)
    dw = torch.fft.irfft2(torch.einsum("ngcab,ngkab->gkcab", X, DY.conj()), s=size)
    return dw[..., : problem.R, : problem.S].reshape(problem.w_shape)


FFT = Algorithm("fft", plain, forward, grad_input, grad_weight)
