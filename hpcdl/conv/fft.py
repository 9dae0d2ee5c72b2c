"""Fourier: correlation in space is a product of spectra, y = F^-1( F(x) * conj(F(w)) ).

The transform is circular: values that leave on the right enter on the left. So one border of zeros serves both sides,
and a transform of a x b >= (H + padding) x (W + padding) gives the linear correlation. For real data the spectrum has
b / 2 + 1 columns. At each frequency the sum over channels is a complex matrix product. A larger kernel costs nothing.
Source: Mathieu, Henaff and LeCun 2014, "Fast training of convolutional networks through FFTs".
"""

import cmath

import torch
from torch.nn.functional import pad

from hpcdl.conv.algorithm import Algorithm, Filters, Implementation
from hpcdl.conv.problem import Problem
from hpcdl.conv.views import by_group, grouped


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
    """The real images of half spectra, times a b: the inverse is the transform of the conjugate, conjugated."""
    columns = radix_2(half.conj().resolve_conj().mT).mT
    mirror = columns[..., 1 : (b + 1) // 2].flip(-1).conj().resolve_conj()
    return radix_2(torch.cat([columns, mirror], -1)).real


def plain(x: torch.Tensor, w: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Radix-2 transforms of x and w, products per frequency, the inverse transform, every stride-th output."""
    a, b = (power_of_two(n) for n in least_size(problem))
    X = grouped(spectrum(shifted(x, problem), (a, b)), problem)
    W = by_group(spectrum(spread(w, problem.dilations), (a, b)), problem).conj().resolve_conj()
    Y = (W.permute(3, 4, 0, 1, 2) @ X.permute(3, 4, 1, 2, 0)).permute(4, 2, 3, 0, 1)
    return _outputs(image(Y, b), problem) * (1 / (a * b))


def least_size(problem: Problem) -> tuple[int, int]:
    """The least transform whose circular correlation is the linear one: all of x with one border, w and y fit."""
    (above, left), (R, S), (rows, columns) = problem.paddings, problem.reach, spread_size(problem)
    return max(problem.H + above, R, rows), max(problem.W + left, S, columns)


def spread_size(problem: Problem) -> tuple[int, int]:
    """From the first to the last output, in pixels."""
    down, right = problem.strides
    return (problem.P - 1) * down + 1, (problem.Q - 1) * right + 1


def shifted(x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """x with the padding above and on the left."""
    above, left = problem.paddings
    return pad(x, (left, 0, above, 0)) if problem.padding else x


def _outputs(y: torch.Tensor, problem: Problem) -> torch.Tensor:
    (rows, columns), (down, right) = spread_size(problem), problem.strides
    return y[..., :rows:down, :columns:right].reshape(problem.y_shape)


def spread(x: torch.Tensor, steps: tuple[int, int]) -> torch.Tensor:
    """x with its pixels `steps` apart (rows, columns), zeros between."""
    if steps == (1, 1):
        return x
    (down, right), (rows, columns) = steps, x.shape[2:]
    wide = x.new_zeros(*x.shape[:2], (rows - 1) * down + 1, (columns - 1) * right + 1)
    wide[..., ::down, ::right] = x
    return wide


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


def good_sizes(problem: Problem) -> tuple[int, int]:
    rows, columns = least_size(problem)
    return good_size(rows), good_size(columns)


def half_spectrum(x: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """The transform of real images with zeros appended, (..., (b / 2 + 1) a); rows of zeros are not transformed."""
    a, b = size
    return torch.fft.fft(torch.fft.rfft(x, b).mT.contiguous(), a).flatten(-2)


def real_image(spectra: torch.Tensor, size: tuple[int, int], rows: int) -> torch.Tensor:
    """The first rows of the images of half spectra."""
    a, b = size
    columns = torch.fft.ifft(spectra.unflatten(-1, (b // 2 + 1, a)))[..., :rows]
    return torch.fft.irfft(columns.mT.contiguous(), b)


def forward(x: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """Library transforms; compiled products; the filters' spectra are kept."""
    size = good_sizes(problem)
    X = grouped(half_spectrum(shifted(x, problem), size), problem)
    W = _spectra(filters, size, problem)
    if W.shape[2] == 1:
        Y = X * W[:, :, 0].conj()  # depthwise: nothing to sum
    else:
        from hpcdl.kernels.cpu.spectrum import spectrum_products  # Numba is slow to import

        Y = spectrum_products(X, W)
    return _outputs(real_image(Y, size, spread_size(problem)[0]), problem)


def _spectra(filters: Filters, size: tuple[int, int], problem: Problem) -> torch.Tensor:
    steps = problem.dilations
    made = filters.made(("fft", size, steps), lambda w: half_spectrum(spread(w, steps), size))
    return by_group(made, problem)


def grad_input(dy: torch.Tensor, filters: Filters, problem: Problem) -> torch.Tensor:
    """dx = F^-1( F(dy) F(w) ), the products summed over k."""
    size, (above, left) = good_sizes(problem), problem.paddings
    DY = grouped(half_spectrum(spread(dy, problem.strides), size), problem)
    DX = torch.einsum("gkcf,ngkf->ngcf", _spectra(filters, size, problem), DY)
    dx = real_image(DX, size, above + problem.H)[..., above:, left : left + problem.W]
    return dx.reshape(problem.x_shape)


def grad_weight(dy: torch.Tensor, x: torch.Tensor, problem: Problem) -> torch.Tensor:
    """dw = F^-1( F(x) conj(F(dy)) ), the products summed over n."""
    size = good_sizes(problem)
    X = grouped(half_spectrum(shifted(x, problem), size), problem)
    DY = grouped(half_spectrum(spread(dy, problem.strides), size), problem)
    DW = torch.einsum("ngcf,ngkf->gkcf", X, DY.conj())
    (R, S), (down, right) = problem.reach, problem.dilations
    return real_image(DW, size, R)[..., ::down, :S:right].reshape(problem.w_shape)


FFT = Algorithm("fft", plain, {"cpu": Implementation(forward, grad_input, grad_weight)})
