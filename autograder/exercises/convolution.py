"""Lab 05, convolution: exercises and checks. The oracle of every convolution is torch's own in float64."""

from fractions import Fraction

import torch

from autograder import checks, show
from autograder.authoring import Lab
from autograder.exercises.convolution_counts import Arena, Counted, Products, counted
from autograder.exercises.convolution_oracles import (
    F64,
    check_columns,
    check_output,
    columns,
    conv,
    normal,
    spectral_mistakes,
    whole,
)
from autograder.forbidden import CONVOLUTION

lab = Lab("convolution", number=5, title="One operation, five algorithms")

LIBRARIES = (*CONVOLUTION, "hpcdl.conv", "scipy.signal", "scipy.ndimage")
OWN = {"forbid": LIBRARIES, "instead": "Here you write what that function does: the formula, a product, a transform."}
KERNELS = {
    "forbid": (*LIBRARIES, "hpcdl.kernels.gpu.direct_simple", "hpcdl.kernels.gpu.direct"),
    "instead": "The library's kernels are for comparison: write your own.",
}
COLUMNS = {
    "forbid": (*LIBRARIES, "aten::im2col", "aten::col2im"),
    "instead": "Here you write what that function does: copy what each place of the window sees, R S slices of x.",
}

conv_direct = lab.exercise("conv_direct", points=10, minutes=10, **OWN)
im2col = lab.exercise("im2col", points=15, minutes=15, functions=("im2col", "col2im"), **COLUMNS)
conv_im2col = lab.exercise("conv_im2col", points=10, minutes=8, uses=("im2col",), **COLUMNS)
toeplitz = lab.exercise("toeplitz", points=10, minutes=10, **OWN)
conv_fft = lab.exercise("conv_fft", points=15, minutes=12, **OWN)
winograd_matrices = lab.exercise("winograd_matrices", points=10, minutes=15)
conv_winograd = lab.exercise("conv_winograd", points=10, minutes=15, uses=("winograd_matrices",), **OWN)
conv_cost = lab.exercise("conv_cost", points=10, minutes=10, functions=("conv_cost", "Problem"))
conv_kernel = lab.exercise("conv_kernel", points=10, minutes=15, functions=("conv_kernel", "launch_in"), **KERNELS)


def images(rng, n, c, h, w, k, r, s, dtype=F64):
    """Random x (n, c, h, w) and w (k, c, r, s)."""
    return normal(rng, n, c, h, w, dtype=dtype), normal(rng, k, c, r, s, dtype=dtype)


def check_convolution(function, rng, sizes, name: str, dtype=F64, **options):
    """The student's convolution of random images of these sizes, (n, c, h, w, k, r, s), against torch's."""
    x, w = images(rng, *sizes, dtype=dtype)
    got = function(x.clone(), w.clone(), **options)
    check_output(got, x, w, options.get("stride", 1), options.get("padding", 0), name=name)


def called(name: str, options: dict) -> str:
    """`conv_fft(x, w, padding=2)`."""
    return f"{name}(x, w{''.join(f', {key}={value}' for key, value in options.items())})"


def check_leaves_alone(function, **tensors):
    """The call leaves its arguments as they were."""
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    function(*tensors.values())
    for name, tensor in tensors.items():
        checks.unchanged(tensor, before[name], name=name)


# --------------------------------------------------------------------------------------------- conv_direct


@conv_direct.check(points=3)
def the_lectures_formula(student, rng):
    "One image, one filter: each output is the sum of the products under the window."
    x, w = torch.arange(1.0, 10.0, dtype=F64).view(1, 1, 3, 3), whole(rng, 1, 1, 2, 2)
    check_output(student.conv_direct(x.clone(), w.clone()), x, w, name="conv_direct(x, w)")
    for sizes in ((1, 1, 5, 7, 1, 3, 3), (1, 1, 5, 7, 1, 2, 3), (1, 1, 6, 4, 1, 4, 1)):
        check_convolution(student.conv_direct, rng, sizes, "conv_direct(x, w)")


@conv_direct.check(points=3, needs="the_lectures_formula")
def channels_are_summed_images_are_not(student, rng):
    "Every filter sums over all input channels; every image of the batch keeps its own outputs."
    for sizes in ((1, 3, 4, 4, 1, 2, 2), (3, 1, 4, 4, 1, 2, 2), (2, 3, 5, 4, 3, 2, 2), (2, 2, 6, 5, 4, 3, 2)):
        check_convolution(student.conv_direct, rng, sizes, "conv_direct(x, w)")
    check_convolution(student.conv_direct, rng, (2, 3, 6, 6, 4, 3, 3), "conv_direct(x, w)", torch.float32)


@conv_direct.check(points=1, needs="channels_are_summed_images_are_not")
def the_smallest_and_the_largest_window(student, rng):
    "A 1x1 window, one as large as the image, one as wide or as high: all are convolutions."
    for sizes in ((2, 3, 4, 5, 2, 1, 1), (2, 3, 4, 5, 2, 4, 5), (1, 2, 4, 5, 2, 1, 5), (1, 2, 4, 5, 2, 4, 1)):
        check_convolution(student.conv_direct, rng, sizes, "conv_direct(x, w)")


STRIDES = tuple({"stride": stride, "padding": padding} for stride, padding in ((2, 0), (3, 0), (1, 1), (2, 2), (3, 1)))


@conv_direct.check(points=2, needs="channels_are_summed_images_are_not")
def strides_and_padding(student, rng):
    "Zeros are put round the image first; then the window moves in steps of stride."
    for options in STRIDES:
        check_convolution(student.conv_direct, rng, (2, 2, 8, 7, 3, 3, 2), called("conv_direct", options), **options)


@conv_direct.check(points=1)
def leaves_images_and_filters_alone(student, rng):
    "x and w are the same after the call."
    x, w = images(rng, 2, 2, 4, 4, 2, 2, 2)
    check_leaves_alone(student.conv_direct, x=x, w=w)


# ------------------------------------------------------------------------------------------- im2col, col2im


@im2col.check(points=3)
def a_column_for_each_window(student, rng):
    "Column q + Q p holds what the window sees at (p, q), row by row."
    for h, w, r, s in ((3, 3, 2, 2), (4, 5, 2, 2), (4, 5, 2, 3), (5, 4, 3, 1), (3, 4, 3, 4)):
        x = torch.arange(1.0, h * w + 1, dtype=F64).view(1, 1, h, w)
        check_columns(student.im2col(x.clone(), r, s), x, r, s)


@im2col.check(points=3, needs="a_column_for_each_window")
def channels_stand_below_each_other(student, rng):
    "The rows run over channel, row and column of the window, in this order; each image has a matrix of its own."
    for n, c, h, w, r, s in ((1, 2, 3, 3, 2, 2), (2, 1, 3, 4, 2, 2), (3, 2, 4, 5, 3, 2)):
        x = torch.arange(1.0, n * c * h * w + 1, dtype=F64).view(n, c, h, w)
        check_columns(student.im2col(x.clone(), r, s), x, r, s)


@im2col.check(points=2, needs="a_column_for_each_window")
def windows_with_stride_and_padding(student, rng):
    "Padding is zeros round the image; stride leaves windows out."
    x = torch.arange(1.0, 85.0, dtype=F64).view(2, 1, 7, 6)
    for stride, padding in ((2, 0), (3, 0), (1, 1), (2, 1), (3, 2)):
        check_columns(student.im2col(x.clone(), 3, 2, stride, padding), x, 3, 2, stride, padding)


WINDOWS = ((1, 1, 3, 3, 2, 2, 1, 0), (2, 2, 5, 4, 3, 2, 1, 0), (2, 1, 7, 6, 3, 3, 2, 1), (1, 3, 5, 5, 2, 2, 3, 0))


@im2col.check(points=2)
def overlaps_are_counted(student, rng):
    "col2im of a matrix of ones counts, for each pixel, the windows that see it."
    for n, c, h, w, r, s, stride, padding in WINDOWS:
        ones = torch.ones(n, c, h, w, dtype=F64)
        seen = columns(ones, r, s, stride, padding)
        got = student.col2im(torch.ones_like(seen), (n, c, h, w), r, s, stride, padding)
        expected = folded(torch.ones_like(seen), (n, c, h, w), r, s, stride, padding)
        checks.close(
            got,
            expected,
            name=f"col2im(ones, ({n}, {c}, {h}, {w}), {r}, {s}, stride={stride}, padding={padding})",
            why="A pixel that several windows see gets the sum of what stands for it in all of them.",
            mistakes={
                "The last window overwrote the others: add, out[...] += columns[...].": (expected > 0).double(),
                "Pixels that no window sees stay 0: start from zeros, not from ones.": expected + 1,
            },
        )


def folded(cols, shape, r, s, stride=1, padding=0):
    """The adjoint of im2col, by autograd: the gradient of <im2col(x), cols> with respect to x."""
    x = torch.zeros(shape, dtype=F64, requires_grad=True)
    return torch.autograd.grad((columns(x, r, s, stride, padding) * cols).sum(), x)[0]


def adjoint_mistakes(cols, shape, r: int, s: int, stride: int, padding: int) -> dict:
    n, c = shape[:2]
    swapped = cols.view(n, c, r, s, -1).transpose(2, 3).reshape(cols.shape)
    channel_last = cols.view(n, r * s, c, -1).transpose(1, 2).reshape(cols.shape)
    seen = folded(torch.ones_like(cols), shape, r, s, stride, padding).clamp(min=1)
    return {
        "Rows of the matrix run over c, then r, then s: here r and s are swapped.": lambda: folded(
            swapped, shape, r, s, stride, padding
        ),
        "Rows of the matrix run over c first: here the channel comes last.": lambda: folded(
            channel_last, shape, r, s, stride, padding
        ),
        "This is the mean of the overlapping values: the adjoint adds them up.": lambda: (
            folded(cols, shape, r, s, stride, padding) / seen
        ),
    }


@im2col.check(points=4, needs="overlaps_are_counted")
def col2im_is_the_adjoint(student, rng):
    "⟨im2col(x), c⟩ = ⟨x, col2im(c)⟩ for every image x and every matrix c."
    for *shape, r, s, stride, padding in WINDOWS:
        cols = whole(rng, *columns(torch.zeros(*shape, dtype=F64), r, s, stride, padding).shape)
        checks.close(
            student.col2im(cols.clone(), tuple(shape), r, s, stride, padding),
            folded(cols, shape, r, s, stride, padding),
            name=f"col2im(columns, {tuple(shape)}, {r}, {s}, stride={stride}, padding={padding})",
            why="Every entry of the matrix goes back to the pixel that im2col took it from, and is added there.",
            mistakes=adjoint_mistakes(cols, shape, r, s, stride, padding),
        )


@im2col.check(points=1)
def leaves_image_and_columns_alone(student, rng):
    "x and the columns are the same after the calls."
    x, cols = whole(rng, 1, 2, 4, 4), whole(rng, 1, 8, 9)
    check_leaves_alone(lambda x: student.im2col(x, 2, 2), x=x)
    check_leaves_alone(lambda columns: student.col2im(columns, (1, 2, 4, 4), 2, 2), columns=cols)


# --------------------------------------------------------------------------------------------- conv_im2col


@conv_im2col.check(points=4)
def filters_times_columns(student, rng):
    "The filters as rows times the windows as columns are all outputs at once."
    for sizes in ((1, 1, 3, 3, 1, 2, 2), (1, 2, 4, 5, 3, 2, 3), (3, 2, 5, 4, 3, 2, 2), (2, 3, 4, 5, 2, 4, 5)):
        check_convolution(student.conv_im2col, rng, sizes, "conv_im2col(x, w)")
    check_convolution(student.conv_im2col, rng, (2, 3, 8, 8, 4, 1, 1), "conv_im2col(x, w)", torch.float32)


@conv_im2col.check(points=2, needs="filters_times_columns")
def any_stride_and_padding(student, rng):
    "Stride and padding are im2col's affair, and the outputs are as many."
    for options in STRIDES:
        check_convolution(student.conv_im2col, rng, (2, 2, 8, 7, 3, 3, 2), called("conv_im2col", options), **options)


@conv_im2col.check(points=3, needs="filters_times_columns")
def one_matrix_product(student, rng):
    "All multiplications are in one product, by the function that is passed as matmul."
    for sizes in ((1, 2, 5, 5, 3, 3, 3), (4, 2, 6, 5, 3, 2, 3)):
        x, w = images(rng, *sizes)
        products = Products(factor=8.0)
        got = student.conv_im2col(x, w, matmul=products.matmul)
        products.check_used(got, conv(x, w), "conv_im2col")
        checks.that(
            products.calls == 1,
            f"matmul was called {products.calls} times for {len(x)} images: one product does all of it. im2col gives "
            "(N, C r s, P Q), and a matrix (K, C r s) multiplies all N of them in one call.",
            got=f"{products.calls} calls",
            expected="1 call",
        )
        wanted = whole_count(x, w)
        checks.equal(products.multiplications, wanted, name="the number of multiplications", why="N K P Q · C R S.")


def whole_count(x, w) -> int:
    """Multiplications of the direct convolution without padding: one for each weight at each output."""
    return conv(x, w).numel() * w[0].numel()


@conv_im2col.check(points=1)
def leaves_both_alone(student, rng):
    "x and w are the same after the call."
    x, w = images(rng, 2, 2, 4, 4, 2, 2, 2)
    check_leaves_alone(student.conv_im2col, x=x, w=w)


# ------------------------------------------------------------------------------------------------ toeplitz


def matrix(w, h: int, wd: int) -> torch.Tensor:
    """The matrix of the convolution, column by column: what it makes of each image with a single 1."""
    units = torch.eye(h * wd, dtype=F64).view(h * wd, 1, h, wd)
    return conv(units, w.double()[None, None]).flatten(1).T.to(w.dtype)


def toeplitz_mistakes(w, h: int, wd: int) -> dict:
    r, s = w.shape
    mistakes = {
        "T is transposed: it has a row for each output and a column for each pixel.": lambda: matrix(w, h, wd).T,
        "The kernel is flipped: row (p, q) has w[i, j] in the column of pixel (p + i, q + j).": lambda: matrix(
            w.flip(0, 1), h, wd
        ),
        "The rows go on over the end of a line: an output whose window would leave the image does not exist.": (
            lambda: every_shift(w, h, wd)
        ),
        "The window wraps round the border: there are (h − R + 1)(wd − S + 1) outputs, where the window fits.": (
            lambda: circulant(w, h, wd)
        ),
        "x.ravel() goes along the rows: pixel (i, j) is entry i · wd + j, not j · h + i.": lambda: (
            matrix(w, h, wd).view(-1, h, wd).transpose(1, 2).reshape(-1, h * wd)
        ),
    }
    if r == s:
        mistakes["w is transposed."] = lambda: matrix(w.T, h, wd)
    return mistakes


def every_shift(w, h: int, wd: int) -> torch.Tensor:
    """One row for every place where the unrolled kernel fits into the unrolled image, line ends or not."""
    first = matrix(w, h, wd)[0]
    last = int(first.nonzero().max()) if first.any() else 0
    return torch.stack([first.roll(i) for i in range(h * wd - last)])


def circulant(w, h: int, wd: int) -> torch.Tensor:
    """The matrix of the circular convolution: a row for each pixel."""
    kernel = torch.zeros(h, wd, dtype=w.dtype)
    kernel[: w.shape[0], : w.shape[1]] = w
    return torch.stack([kernel.roll((p, q), (0, 1)).flatten() for p in range(h) for q in range(wd)])


def ask_toeplitz(student, w, h: int, wd: int) -> torch.Tensor:
    got = student.toeplitz(w.clone(), h, wd)
    checks.close(
        got,
        matrix(w, h, wd),
        name=f"toeplitz(w {tuple(w.shape)}, {h}, {wd})",
        why="Row q + Q p has w[i, j] at column (p + i) · wd + (q + j), and zeros elsewhere.",
        mistakes=toeplitz_mistakes(w, h, wd),
        rtol=0.0,
        atol=0.0,
    )
    return got


@toeplitz.check(points=3)
def the_lectures_matrix(student, rng):
    "A 2x2 kernel over a 3x3 image is the lecture's matrix of 4 rows and 9 columns."
    ask_toeplitz(student, torch.tensor([[2.0, 3.0], [5.0, 7.0]], dtype=F64), 3, 3)


@toeplitz.check(points=3, needs="the_lectures_matrix")
def any_kernel_and_image(student, rng):
    "T @ x.ravel() is the convolution, for rectangular kernels and images, 1x1 and as large as the image."
    for r, s, h, wd in ((2, 2, 4, 5), (2, 3, 5, 4), (3, 1, 4, 6), (1, 1, 3, 4), (3, 4, 3, 4), (1, 3, 1, 5)):
        w, x = whole(rng, r, s), whole(rng, h, wd)
        T = ask_toeplitz(student, w, h, wd)
        expected = conv(x[None, None], w[None, None]).flatten()
        checks.close(T @ x.flatten(), expected, name="T @ x.ravel()")


@toeplitz.check(points=2, needs="the_lectures_matrix")
def mostly_zeros(student, rng):
    "Every row has R S numbers that are not zero; all others are exactly zero, and the dtype is that of w."
    for dtype in (F64, torch.float32):
        w = whole(rng, 3, 2).to(dtype)
        T = ask_toeplitz(student, w, 6, 5)
        checks.equal((T != 0).sum(dim=1).tolist(), [6] * (4 * 4), name="the non-zeros of each row")


@toeplitz.check(points=2, needs="the_lectures_matrix")
def its_transpose_goes_back(student, rng):
    "Tᵀ times the gradient of the outputs is the gradient of the image."
    for r, s, h, wd in ((2, 2, 3, 3), (3, 2, 5, 6)):
        w, dy = whole(rng, r, s), whole(rng, h - r + 1, wd - s + 1)
        x = torch.zeros(1, 1, h, wd, dtype=F64, requires_grad=True)
        (expected,) = torch.autograd.grad(conv(x, w[None, None]), x, dy[None, None])
        T = student.toeplitz(w.clone(), h, wd)
        checks.tensor(T, name="toeplitz(w, h, wd)", shape=((h - r + 1) * (wd - s + 1), h * wd), dtype=F64)
        checks.close(
            T.T @ dy.flatten(), expected.flatten(), name="T.T @ dy.ravel()", why="y = T x, so ∂L/∂x = Tᵀ ∂L/∂y."
        )


# ------------------------------------------------------------------------------------------------ conv_fft


def check_fft(student, rng, sizes, dtype=F64, **options):
    x, w = images(rng, *sizes, dtype=dtype)
    got = student.conv_fft(x.clone(), w.clone(), **options)
    if type(got) is torch.Tensor and got.is_complex():
        checks.fail(
            f"conv_fft returns {show.dtype(got)} numbers: images are real. torch.fft.irfft2 gives a real result.",
            got=got,
        )
    padding = options.get("padding", 0)
    check_output(got, x, w, padding=padding, name=called("conv_fft", options), extra=spectral_mistakes(x, w, padding))


@conv_fft.check(points=4)
def a_product_of_spectra(student, rng):
    "One image, one filter: transform both, multiply by the conjugate, transform back, cut."
    for sizes in ((1, 1, 4, 4, 1, 2, 2), (1, 1, 8, 6, 1, 3, 3), (1, 1, 6, 8, 1, 2, 5)):
        check_fft(student, rng, sizes)


@conv_fft.check(points=3, needs="a_product_of_spectra")
def odd_sizes(student, rng):
    "Images of odd height and width come back with all their pixels."
    for sizes in ((1, 1, 5, 5, 1, 3, 3), (1, 1, 6, 7, 1, 2, 2), (1, 1, 7, 6, 1, 4, 3)):
        check_fft(student, rng, sizes)


@conv_fft.check(points=3, needs="a_product_of_spectra")
def many_channels_and_images(student, rng):
    "The products of the spectra are summed over the input channels, for each image and each filter."
    for sizes in ((1, 3, 4, 4, 1, 2, 2), (3, 1, 4, 4, 1, 2, 2), (2, 3, 6, 6, 3, 3, 3), (3, 2, 6, 4, 4, 3, 2)):
        check_fft(student, rng, sizes)


@conv_fft.check(points=3, needs="a_product_of_spectra")
def zeros_not_the_other_side(student, rng):
    "With padding the window meets zeros beyond the border, not the opposite side of the image."
    for padding, sizes in ((1, (1, 1, 6, 6, 1, 3, 3)), (2, (2, 2, 5, 6, 2, 3, 2)), (4, (1, 2, 4, 4, 1, 5, 5))):
        check_fft(student, rng, sizes, padding=padding)


@conv_fft.check(points=2, needs="a_product_of_spectra")
def the_kernel_as_large_as_the_image(student, rng):
    "A kernel as large as the image, one of a single pixel, float32: the Fourier transform does not mind."
    check_fft(student, rng, (2, 2, 6, 8, 3, 6, 8))
    check_fft(student, rng, (2, 2, 6, 4, 3, 1, 1))
    check_fft(student, rng, (2, 3, 16, 12, 4, 9, 7), torch.float32)
    x, w = images(rng, 1, 2, 4, 4, 2, 2, 2)
    check_leaves_alone(student.conv_fft, x=x, w=w)


# --------------------------------------------------------------------------------------- winograd_matrices


def ask_matrices(student, m: int, r: int):
    """(A^T, G, B^T) as lists of rows, each of the right size and exact."""
    a, call = m + r - 1, f"winograd_matrices({m}, {r})"
    got = student.winograd_matrices(m, r)
    checks.that(
        type(got) in (tuple, list) and len(got) == 3,
        f"{call} returned {show.an(show.type_name(got))}, expected three matrices: `return A_T, G, B_T`.",
        got=got,
    )
    for rows, name, shape in zip(got, ("A_T", "G", "B_T"), ((m, a), (a, r), (a, a)), strict=True):
        checks.that(
            type(rows) in (tuple, list) and all(type(row) in (tuple, list) for row in rows),
            f"{name} of {call} is {show.an(show.type_name(rows))}, expected a list of rows.",
            got=rows,
        )
        sizes = (len(rows), *sorted({len(row) for row in rows}))
        checks.that(
            sizes == shape,
            f"{name} of {call} is {' x '.join(map(str, sizes))}, expected {shape[0]} x {shape[1]}. "
            f"A tile has a = m + r − 1 = {a} points.",
            got=rows,
        )
        check_exact(rows, name, call)
    return got


def check_exact(rows, name: str, call: str) -> None:
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            checks.that(
                type(value) in (int, Fraction),
                f"{name}[{i}][{j}] of {call} is {show.an(show.type_name(value))}, expected an exact Fraction: "
                "Fraction(1, 2), not 0.5. Dividing two ints gives a float; dividing a Fraction stays exact.",
                got=value,
            )


def by_matrices(A_T, G, B_T, g, d) -> list:
    """A^T [(G g) * (B^T d)], exactly."""
    products = [x * y for x, y in zip(times(G, g), times(B_T, d), strict=True)]
    return times(A_T, products)


def times(rows, vector) -> list:
    return [sum(x * y for x, y in zip(row, vector, strict=True)) for row in rows]


def unit(n: int, i: int) -> list[int]:
    return [int(k == i) for k in range(n)]


def check_identity(matrices, m: int, r: int) -> None:
    """Both sides are linear in g and in d: equal on all unit vectors is equal everywhere."""
    a = m + r - 1
    pairs = [(k, j) for k in range(r) for j in range(a)]
    got = {pair: by_matrices(*matrices, unit(r, pair[0]), unit(a, pair[1])) for pair in pairs}
    right = {(k, j): [int(j == i + k) for i in range(m)] for k, j in pairs}
    named = {
        "It computes the convolution with a flipped filter: y_i = Σ g_k d_(i + k) is wanted.": {
            (k, j): right[r - 1 - k, j] for k, j in pairs
        },
        "Every output has the wrong sign: check the signs of the denominators.": {
            pair: [-x for x in value] for pair, value in right.items()
        },
    }
    sentence = next((sentence for sentence, value in named.items() if value == got), "")
    k, j = next((pair for pair in pairs if got[pair] != right[pair]), (0, 0))
    checks.that(
        got == right,
        f"{sentence} F({m}, {r}) with g = {unit(r, k)} and d = {unit(a, j)}: A^T[(G g) ⊙ (B^T d)] is not the "
        "convolution.".lstrip(),
        got=", ".join(map(str, got[k, j])),
        expected=", ".join(map(str, right[k, j])),
        why="y_i = Σ_k g_k d_(i + k). Both sides are linear, so unit vectors decide it.",
    )


@winograd_matrices.check(points=2)
def exact_and_of_the_right_size(student, rng):
    "A^T is m x a, G a x r, B^T a x a with a = m + r − 1, and every entry is an exact fraction."
    for m, r in ((2, 3), (4, 3)):
        ask_matrices(student, m, r)


@winograd_matrices.check(points=4, needs="exact_and_of_the_right_size")
def four_products_for_two_outputs(student, rng):
    "F(2, 3): two outputs of a filter of three from four products, exactly."
    check_identity(ask_matrices(student, 2, 3), 2, 3)


@winograd_matrices.check(points=4, needs="exact_and_of_the_right_size")
def every_tile_and_filter(student, rng):
    "F(m, r) for tiles of 1 to 6 outputs and filters of 1 to 5: an identity in exact fractions."
    for m, r in ((4, 3), (3, 2), (2, 2), (6, 3), (2, 5), (1, 3), (3, 1), (1, 1), (4, 4)):
        check_identity(ask_matrices(student, m, r), m, r)


# ------------------------------------------------------------------------------------------- conv_winograd


def check_winograd(student, rng, sizes, dtype=F64, **options):
    x, w = images(rng, *sizes, dtype=dtype)
    got = student.conv_winograd(x.clone(), w.clone(), **options)
    check_output(got, x, w, name=called("conv_winograd", options), extra=scattered(x, w, **options))


def scattered(x, w, m: int = 2) -> dict:
    """What comes out when tiles (N, K, rows, columns, m, m) are reshaped as they are."""
    y = conv(x, w)
    if y.shape[2] % m or y.shape[3] % m:
        return {}
    sentence = (
        "The tiles are not put together: bring the axes into the order (N, K, rows, m, columns, m), then reshape."
    )
    return {sentence: y.unfold(2, m, m).unfold(3, m, m).reshape(y.shape)}


@conv_winograd.check(points=3)
def whole_tiles(student, rng):
    "Outputs that fall into whole tiles of 2x2: one tile, then many, then channels and images."
    for sizes in ((1, 1, 4, 4, 1, 3, 3), (1, 1, 6, 8, 1, 3, 3), (2, 3, 8, 6, 4, 3, 3)):
        check_winograd(student, rng, sizes)
    check_winograd(student, rng, (2, 3, 10, 8, 4, 3, 3), torch.float32)
    x, w = images(rng, 1, 2, 6, 6, 2, 3, 3)
    check_leaves_alone(student.conv_winograd, x=x, w=w)


@conv_winograd.check(points=2, needs="whole_tiles")
def tiles_that_stick_out(student, rng):
    "Outputs that are no multiple of m: fill the image up with zeros, and cut the surplus outputs off."
    for sizes in ((1, 1, 5, 5, 1, 3, 3), (2, 2, 7, 6, 3, 3, 3), (1, 2, 3, 3, 2, 3, 3), (1, 1, 4, 9, 1, 3, 3)):
        check_winograd(student, rng, sizes)


@conv_winograd.check(points=1, needs="whole_tiles")
def larger_tiles_and_filters(student, rng):
    "m = 4, m = 3 and m = 1, filters of 5x5 and 2x2: the matrices change, the algorithm does not."
    for m, sizes in (
        (4, (1, 2, 9, 11, 2, 3, 3)),
        (3, (1, 1, 8, 8, 2, 2, 2)),
        (2, (1, 1, 8, 9, 1, 5, 5)),
        (1, (1, 1, 4, 5, 1, 3, 3)),
    ):
        check_winograd(student, rng, sizes, m=m)


def counted_winograd(student, rng, sizes, m: int):
    """A counted run: `(x, w, products, tiles)`; sizes fall into whole tiles."""
    x, w = images(rng, *sizes)
    products = Products(factor=4.0)
    got, right = student.conv_winograd(x, w, m, matmul=products.matmul), conv(x, w)
    products.check_used(got, right, "conv_winograd")
    return x, w, products, len(x) * (right.shape[2] // m) * (right.shape[3] // m)


COUNTED = ((2, (1, 1, 4, 4, 1, 3, 3)), (2, (2, 3, 8, 6, 4, 3, 3)), (4, (1, 2, 10, 10, 3, 3, 3)))


@conv_winograd.check(points=2, needs="whole_tiles")
def sixteen_multiplications(student, rng):
    "A tile of 2x2 outputs costs 16 multiplications for each pair of channels, where the direct way takes 36."
    for m, sizes in COUNTED:
        x, w, products, tiles = counted_winograd(student, rng, sizes, m)
        a, direct = m + 2, whole_count(x, w)
        wanted = tiles * a * a * w.shape[0] * w.shape[1]
        reason = "as many as the direct way" if products.multiplications == direct else "not that of Winograd"
        checks.that(
            products.multiplications == wanted,
            f"{products.multiplications:,} multiplications for {tiles} tiles of {m}x{m}, {reason}: expected "
            f"{wanted:,}, {a}² for each tile, filter and channel. matmul gets the transformed filters and tiles alone.",
            got=f"{products.multiplications:,} multiplications",
            expected=f"{wanted:,} (the direct way: {direct:,})",
        )


@conv_winograd.check(points=2, needs="sixteen_multiplications")
def each_filter_is_transformed_once(student, rng):
    "The transformed filters enter the product once, for all tiles together: not again for each tile."
    for m, sizes in COUNTED[1:]:
        _, w, products, tiles = counted_winograd(student, rng, sizes, m)
        k, c = w.shape[:2]
        once, each = (m + 2) ** 2 * (k * c + c * tiles), (m + 2) ** 2 * (k * c * tiles + c * tiles)
        checks.that(
            2 * products.operands < once + each,
            f"{products.operands:,} numbers went into matmul: the transformed filters are there again for each of the "
            f"{tiles} tiles. A filter's transform does not depend on the tile: compute U once, and multiply it "
            "with all tiles in one batched product, (a², K, C) @ (a², C, tiles).",
            got=f"{products.operands:,} numbers, in {products.calls} call{'s' * (products.calls != 1)}",
            expected=f"{once:,} numbers: {(m + 2) ** 2 * k * c:,} of filters and {(m + 2) ** 2 * c * tiles:,} of tiles",
        )


# ----------------------------------------------------------------------------------------------- conv_cost

LAYERS = {  # N, C, H, W, K, R, S and options
    "3x3": ((2, 3, 8, 8, 4, 3, 3), {"padding": 1}),
    "3x3, odd": ((1, 2, 9, 7, 3, 3, 3), {}),
    "5x3, stride 2": ((2, 2, 11, 8, 3, 5, 3), {"stride": 2, "padding": 1}),
    "7x7": ((1, 1, 12, 20, 2, 7, 7), {}),
}
SQUARE, OTHERS = ("3x3", "3x3, odd"), ("5x3, stride 2", "7x7")


def check_cost(student, algorithm: str, layers) -> None:
    """conv_cost is what counting a run gives."""
    for layer in layers:
        (n, c, h, wd, k, r, s), options = LAYERS[layer]
        problem = student.Problem(n, c, h, wd, k, r, s, **options)
        got = student.conv_cost(algorithm, problem)
        name = f"conv_cost({algorithm!r}, Problem({n}, {c}, {h}, {wd}, {k}, {r}, {s}, {options}))"
        checks.that(
            type(got) in (tuple, list) and len(got) == 2,
            f"{name} is {show.an(show.type_name(got))}, expected (multiplications, bytes).",
            got=got,
        )
        run = counted(algorithm, torch.ones(n, c, h, wd), torch.ones(k, c, r, s), **options)
        for value, part in zip(got, ("multiplications", "bytes"), strict=True):
            check_count(value, run, part, name)


def check_count(value, run: Counted, part: str, name: str) -> None:
    """One of the two numbers is that of the counted run; a known mistake is named."""
    wanted, is_number = getattr(run, part), type(value) in (int, float)
    mistake = run.mistakes(part).get(value, "") if is_number else ""
    checks.that(
        is_number and value == wanted,
        f"{mistake} The {part} of {name} are {show.show(value)}, counted {wanted:,}.".lstrip(),
        got=value,
        expected=wanted,
        why=run.words(part),
    )


@conv_cost.check(points=2)
def direct_and_im2col(student, rng):
    "A multiplication for each weight at each output; im2col's matrix is written once and read once."
    for algorithm in ("direct", "im2col"):
        check_cost(student, algorithm, (*SQUARE, *OTHERS))


@conv_cost.check(points=1)
def toeplitzs_matrix(student, rng):
    "Toeplitz: the non-zeros of T, each kept with its row and its column."
    check_cost(student, "toeplitz", (*SQUARE, *OTHERS))


@conv_cost.check(points=3)
def winograds_tiles(student, rng):
    "Winograd: (m + 2)² multiplications for each tile, filter and channel; tiles at the border count as whole ones."
    for algorithm in ("winograd_2x2", "winograd_4x4"):
        check_cost(student, algorithm, SQUARE)


@conv_cost.check(points=2)
def fouriers_spectra(student, rng):
    "Fourier: four real multiplications for each complex product, on half a spectrum."
    check_cost(student, "fft", (*SQUARE, *OTHERS))


ORDERS = (
    ("VGG conv3_2", (1, 256, 56, 56, 256, 3, 3), {"padding": 1}, ("winograd_4x4", "fft", "winograd_2x2", "direct")),
    ("a 1x1 layer", (1, 64, 32, 32, 64, 1, 1), {}, ("direct", "fft")),
    ("a 13x13 layer", (1, 64, 64, 64, 64, 13, 13), {}, ("fft", "direct")),
)


@conv_cost.check(points=2, needs=("direct_and_im2col", "fouriers_spectra"))
def predicts_the_order(student, rng):
    "On real layers it says which algorithm multiplies least."
    for layer, sizes, options, order in ORDERS:
        problem = student.Problem(*sizes, **options)
        got = {algorithm: student.conv_cost(algorithm, problem)[0] for algorithm in order}
        checks.equal(
            sorted(order, key=got.get), list(order), name=f"{layer}, from the fewest multiplications to the most"
        )


# --------------------------------------------------------------------------------------------- conv_kernel


def check_kernel(student, rng, sizes, stride: int = 1, padding: int = 0) -> None:
    """The kernel's result of whole numbers (exact in every precision), and the memory round it."""
    n, c, h, wd, k, r, s = sizes
    x, w = whole(rng, n, c, h, wd).float(), whole(rng, k, c, r, s).float()
    arena = Arena(x, w, conv(x, w, stride, padding).shape)
    got = student.launch_in(arena.memory.clone(), tuple(x.shape), tuple(w.shape), stride, padding)
    arena.check_guards(got)
    check_output(
        arena.result(got), x, w, stride, padding, name="y after conv_kernel", extra=blocks(x, w, stride, padding)
    )


def blocks(x, w, stride: int, padding: int) -> dict:
    """What a kernel gives that takes only some blocks of the sum over (c, r, s), or writes in another order."""
    flat, cols = w.flatten(1), columns(x, *w.shape[2:], stride, padding)
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
        "Only the first block of the sum over (c, r, s) is there: go on in steps of BLOCK_K until C R S.": (
            (flat[:, :16] @ cols[:, :16]).view(shape)
        ),
        "Only the last block of the sum is left: add to the accumulator, acc += tl.dot(a, b).": (
            (flat[:, last:] @ cols[:, last:]).view(shape)
        ),
    }


@conv_kernel.check(points=3, seconds=20)
def whole_blocks(student, rng):
    "Where pixels, filters and weights fill their blocks of 16, one block and several."
    for sizes in ((1, 4, 5, 5, 16, 2, 2), (1, 8, 9, 9, 32, 2, 2)):
        check_kernel(student, rng, sizes)


@conv_kernel.check(points=4, needs="whole_blocks", seconds=20)
def masked_borders(student, rng):
    "Any size: what sticks out of a block is neither read nor written."
    for sizes in ((1, 1, 3, 3, 1, 2, 2), (2, 3, 6, 5, 5, 3, 2), (3, 2, 7, 7, 17, 3, 3)):
        check_kernel(student, rng, sizes)


@conv_kernel.check(points=3, needs="whole_blocks", seconds=20)
def kernels_stride_and_padding(student, rng):
    "Stride and padding: pixels beyond the border are zeros, and never read."
    for stride, padding in ((2, 0), (1, 1), (3, 2)):
        check_kernel(student, rng, (2, 2, 7, 6, 5, 3, 3), stride, padding)
