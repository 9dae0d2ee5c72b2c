# %% [markdown]
# # Lab 05 · Convolution
# ## One operation, five algorithms
#
# A convolutional network spends nearly all its time in one operation. A small window slides over an image; at each
# place you multiply the numbers under it by weights and add them up. There are at least five ways to compute this. They
# give the same numbers, but one needs only a quarter of the multiplications of another, one needs ten times the memory,
# and the fastest depends on the layer. In this lab you write all of them, count their operations, race them, and write
# one for the GPU.
#
# **You will be able to**
# - write a convolution directly, as a matrix product, as a matrix, with Fourier transforms and with Winograd's tiles;
# - count the multiplications and the memory of each, and predict which is best for a layer;
# - derive Winograd's matrices exactly, for every size of tile and filter;
# - train a network with your own convolution, whose two gradients are convolutions, too;
# - write a GPU kernel that multiplies by a matrix without ever storing it.
#
# **100 points, 10 exercises, about 120 minutes: 22 reading + 88 exercises + 10 runs; two extra exercises take 30 more, and have 20 of the points.** You need matrix products and the basics of complex numbers, but no
# GPU and no download. The kernel at the end is written in Triton, which runs on Linux. On other systems run the lab on
# Binder, or skip that exercise.

# %%
import math
import time
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display
from torch.nn import functional

from autograder import check
from hpcdl.conv import ALGORITHMS, Problem
from hpcdl.data import digits
from hpcdl.kernels.anywhere import DEVICE, run, tl, triton
from hpcdl.nn import networks
from hpcdl.widgets import LiveFigure, guess, guessed, passed, progress, reveal, style, when_solved
from hpcdl.widgets.pictures import conv_gradient, convolution_race, sliding_window, winograd_products

torch.set_num_threads(1)  # one thread for everyone: a fair race, and steadier times
style.use()

# %% [markdown]
# ## See it first
#
# The picture shows the lecture's example: a window of 2 x 2 weights α β γ δ slides over an image of 3 x 3 pixels A … J.
# Press play, or step with the arrow keys. Each place of the window gives one output, and it also fills **a column** of
# the matrix in the middle and **a row** of the matrix on the right.
#
# 1. Which pixel is copied most often into the matrix in the middle? Which only once?
# 2. In the matrix on the right, how many numbers are not zero? Make the image larger: does their share rise or fall?
# 3. Set the stride to 2. What happens to the two matrices?

# %%
sliding_window.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. The pixel in the middle, E, since all four windows see it. Only one window sees each of the corners A, C, G, J. The
#    matrix holds a pixel once for each window that sees it, which is up to R S times for a window of R x S. So the
#    second algorithm needs much memory.
# 2. 16 of 36: each of the four rows has the four weights. The share falls, because a row always has four weights, but
#    gets longer with the image.
# 3. The window has fewer places, so there are fewer columns in the middle and fewer rows on the right. Their contents
#    do not change.
# </details>

# %% [markdown]
# ## The formula
#
# Images come in batches, `x (N, C, H, W)`: N images with C channels, H rows and W columns. Filters are `w (K, C, R, S)`: K filters, each with a
# window of R x S weights **for each channel**. The outputs are `y (N, K, P, Q)`, one channel for each filter:
#
# $$y_{n,k}(p, q) = \sum_{c=0}^{C-1} \sum_{i=0}^{R-1} \sum_{j=0}^{S-1} w_{k,c}(i, j)\; x_{n,c}(p + i, q + j).$$
#
# This is the lecture's formula with its letters $f_o \to k$, $f_i \to c$. Mathematicians call it a *correlation*; their
# convolution flips the window, $x(p - i, q - j)$. Deep learning does not flip it, and neither do we.
#
# The window fits in $P = H - R + 1$ places from top to bottom. Two options change that. **Padding** first puts rings of
# zeros around the image. With **stride** $t$ the window moves $t$ pixels at a time, so it starts at pixel $(t p, t q)$:
#
# $$P = \left\lfloor \frac{H + 2\,\text{padding} - R}{\text{stride}} \right\rfloor + 1, \qquad
# Q = \left\lfloor \frac{W + 2\,\text{padding} - S}{\text{stride}} \right\rfloor + 1.$$
#
# You may not use torch's own convolutions in these exercises: the check notices if you call one.
#
# {{exercise conv_direct}}
#
# Write the formula as a function, with stride and padding.
#
# <details><summary>Hint 1: which loops?</summary>
#
# Seven loops would be right, but would take minutes. Loop only over the few places (i, j) of the window, and let torch
# do all images, channels and outputs at once.
#
# </details>
# <details><summary>Hint 2: the pixels that place (i, j) of the window sees</summary>
#
# While the window slides, its place (i, j) meets pixels in the rows i, i + stride, i + 2 stride, … (P rows): `x[:, :, i
# : i + stride * (P - 1) + 1 : stride, j : j + stride * (Q - 1) + 1 : stride]`, of shape (N, C, P, Q).
# `functional.pad(x, (padding,) * 4)` adds the zeros.
#
# </details>
# <details><summary>Hint 3: sum over the channels</summary>
#
# Each place (i, j) of the window adds to all of y at once: the weights `w[:, :, i, j]`, of shape (K, C), times what
# the place sees, of shape (N, C, P, Q). `torch.einsum` sums over c; write the letters of the two factors and of y.
# </details>


# %%
def conv_direct(x, w, stride=1, padding=0):
    """The convolution by its formula.

    x: (N, C, H, W), w: (K, C, R, S), of the same dtype; neither is changed. Returns y (N,
    K, P, Q), of that dtype.

    >>> conv_direct(torch.arange(1.0, 10.0).view(1, 1, 3, 3), torch.ones(1, 1, 2, 2))
    tensor([[[[12., 16.], [24., 28.]]]])
    """
    # BEGIN SOLUTION
    (N, _, H, W), (K, _, R, S) = x.shape, w.shape
    P, Q = (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1
    x = functional.pad(x, (padding,) * 4)
    y = x.new_zeros(N, K, P, Q)
    for i in range(R):
        for j in range(S):
            seen = x[:, :, i : i + stride * (P - 1) + 1 : stride, j : j + stride * (Q - 1) + 1 : stride]
            y += torch.einsum("kc,ncpq->nkpq", w[:, :, i, j], seen)
    return y
    # END SOLUTION


# %%
check("convolution.conv_direct")

# %% [markdown]
# ## A convolution is a matrix product
#
# Processors are better at matrix products than at anything else. So copy the pixels that the window sees at each place
# into a column. Then a convolution is **one** product, filters (K, C R S) times columns (C R S, P Q). This is *im2col*
# (Chellapilla et al., 2006), the matrix in the middle of the picture.
#
# The rows of the matrix run over channel, then row, then column of the window, so that a filter is just
# `w[k].flatten()`. The columns run over p, then q. For the lecture's image and a window of 2 x 2:
#
# $$\begin{pmatrix} A&B&C\\ D&E&F\\ G&H&J \end{pmatrix} \;\to\;
# \begin{pmatrix} A&B&D&E\\ B&C&E&F\\ D&E&G&H\\ E&F&H&J \end{pmatrix}$$
#
# The other direction, `col2im`, takes a matrix of that shape and **adds** each of its numbers to the pixel that
# `im2col` copies there. It is not the inverse, since a pixel that was copied four times comes back four times. It is
# the *adjoint*: $\langle \text{im2col}(x), c\rangle = \langle x, \text{col2im}(c)\rangle$. Training needs it: if the
# columns get the gradient $c$, the image gets `col2im(c)`.
#
# Copy and add the slices of x yourself: torch's `unfold` and `fold` are not allowed here.
#
# {{exercise im2col}}
#
# Write both: `im2col` makes the matrix, and `col2im` is its adjoint.
#
# <details><summary>Hint 1: the same R S slices</summary>
#
# The slice of hint 2 above, (N, C, P, Q), is the row (c, i, j) of the matrix for all c at once. Make an empty tensor
# (N, C, r, s, P, Q), fill `[:, :, i, j]`, and reshape at the end.
#
# </details>
# <details><summary>Hint 2: col2im</summary>
#
# Take `columns.view(N, C, r, s, P, Q)`, a padded image of zeros, and the same two loops. Now the slice of the image is
# on the left, with `+=`. At the end cut off the padding.
#
# </details>
# <details><summary>Hint 3: which slice?</summary>
#
# The place (i, j) sees the pixels that it sees in `conv_direct`. In `im2col` this slice is on the right-hand side, in
# `col2im` on the left.
# </details>


# %%
def im2col(x, r, s, stride=1, padding=0):
    """The pixels that a window of r x s sees at each of its places, as the columns of a
    matrix.

    x: (N, C, H, W), not changed. Returns (N, C r s, P Q): row s (r c + i) + j, column Q p
    + q holds pixel (p stride + i, q stride + j) of channel c of the padded image.

    >>> im2col(torch.arange(1.0, 10.0).view(1, 1, 3, 3), 2, 2)[0]
    tensor([[1., 2., 4., 5.], [2., 3., 5., 6.], [4., 5., 7., 8.], [5., 6., 8., 9.]])
    """
    # BEGIN SOLUTION
    N, C, H, W = x.shape
    P, Q = (H + 2 * padding - r) // stride + 1, (W + 2 * padding - s) // stride + 1
    x = functional.pad(x, (padding,) * 4)
    columns = x.new_empty(N, C, r, s, P, Q)
    for i in range(r):
        for j in range(s):
            columns[:, :, i, j] = x[:, :, i : i + stride * (P - 1) + 1 : stride, j : j + stride * (Q - 1) + 1 : stride]
    return columns.view(N, C * r * s, P * Q)
    # END SOLUTION


def col2im(columns, shape, r, s, stride=1, padding=0):
    """The adjoint of im2col: add each number of the matrix to the pixel that im2col takes
    it
    from.

    columns: (N, C r s, P Q), not changed; shape: (N, C, H, W), the image's. Returns an
    image of that shape.

    >>> col2im(torch.ones(1, 4, 4), (1, 1, 3, 3), 2, 2)[0, 0]
    tensor([[1., 2., 1.], [2., 4., 2.], [1., 2., 1.]])
    """
    # BEGIN SOLUTION
    N, C, H, W = shape
    P, Q = (H + 2 * padding - r) // stride + 1, (W + 2 * padding - s) // stride + 1
    columns = columns.view(N, C, r, s, P, Q)
    x = columns.new_zeros(N, C, H + 2 * padding, W + 2 * padding)
    for i in range(r):
        for j in range(s):
            x[:, :, i : i + stride * (P - 1) + 1 : stride, j : j + stride * (Q - 1) + 1 : stride] += columns[:, :, i, j]
    return x[:, :, padding : padding + H, padding : padding + W]
    # END SOLUTION


# %%
check("convolution.im2col")

# %% [markdown]
# Now compute the product. The function that multiplies is an argument, `matmul`. Use it like `torch.matmul`; the check
# passes one that counts the multiplications.
#
# {{exercise conv_im2col}}
#
# Write the convolution with your `im2col` and one call of `matmul`.
#
# <details><summary>Hint 1: shapes</summary>
#
# `w.flatten(1)` is (K, C R S); the columns are (N, C R S, P Q). `matmul` of the two is (N, K, P Q): a matrix times a stack of matrices, in one call.
#
# </details>
# <details><summary>Hint 2: the last step</summary>
#
# P Q numbers in a row become P rows of Q again: `.view(N, K, P, Q)`.
#
# </details>


# %%
def conv_im2col(x, w, stride=1, padding=0, matmul=torch.matmul):
    """The convolution as one matrix product, of the filters with the columns of im2col.

    x: (N, C, H, W), w: (K, C, R, S); neither is changed. Returns y (N, K, P, Q). All
    multiplications happen in one call of `matmul`.

    >>> conv_im2col(torch.arange(1.0, 10.0).view(1, 1, 3, 3), torch.ones(1, 1, 2, 2))
    tensor([[[[12., 16.], [24., 28.]]]])
    """
    # BEGIN SOLUTION
    (N, _, H, W), (K, _, R, S) = x.shape, w.shape
    P, Q = (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1
    return matmul(w.flatten(1), im2col(x, R, S, stride, padding)).view(N, K, P, Q)
    # END SOLUTION


# %%
check("convolution.conv_im2col")

# %% [markdown]
# ## A convolution is a matrix
#
# im2col turns the image into a matrix. You can also turn the **filter** into a matrix, and treat the image as one long
# vector. For the lecture's example
#
# $$\begin{pmatrix}
# \alpha&\beta&0&\gamma&\delta&0&0&0&0\\
# 0&\alpha&\beta&0&\gamma&\delta&0&0&0\\
# 0&0&0&\alpha&\beta&0&\gamma&\delta&0\\
# 0&0&0&0&\alpha&\beta&0&\gamma&\delta
# \end{pmatrix}
# \begin{pmatrix} A\\B\\C\\D\\E\\F\\G\\H\\J \end{pmatrix} =
# \begin{pmatrix} \alpha A + \beta B + \gamma D + \delta E\\ \alpha B + \beta C + \gamma E + \delta F\\
# \alpha D + \beta E + \gamma G + \delta H\\ \alpha E + \beta F + \gamma H + \delta J \end{pmatrix}.$$
#
# (The lecture adds a bias $b$ to each line.) A matrix whose diagonals are constant is called *Toeplitz*; this one is
# made of such blocks. From row 2 to row 3 the weights jump by **two** places, because the window reached the end of a
# line. You would not compute with this matrix, since nearly all its numbers are zeros. But it shows that a convolution
# is linear, $y = T x$. So the gradient of $x$ is $T^T$ times the gradient of $y$, and this is a convolution, too.
#
# {{exercise toeplitz}}
#
# Build this matrix for one filter and one channel.
#
# <details><summary>Hint 1: one row</summary>
#
# Row `p * Q + q` belongs to the output (p, q). It has the weight `w[i, j]` at the position of pixel (p + i, q + j) in
# the unrolled image: column `(p + i) * wd + q + j`.
#
# </details>
# <details><summary>Hint 2: three loops are enough</summary>
#
# The S weights of a row of the window are next to each other: `T[row, start : start + S] = w[i]`.
#
# </details>


# %%
def toeplitz(w, h, wd):
    """The matrix T of a convolution: T @ x.ravel() gives the outputs, for every image
    x (h, wd).

    w: (R, S), one filter for one channel. Returns T ((h - R + 1) (wd - S + 1), h wd), of
    the dtype of w.

    >>> toeplitz(torch.tensor([[1.0, 2.0]]), 1, 4)
    tensor([[1., 2., 0., 0.], [0., 1., 2., 0.], [0., 0., 1., 2.]])
    """
    # BEGIN SOLUTION
    R, S = w.shape
    P, Q = h - R + 1, wd - S + 1
    T = w.new_zeros(P * Q, h * wd)
    for p in range(P):
        for q in range(Q):
            for i in range(R):
                start = (p + i) * wd + q
                T[p * Q + q, start : start + S] = w[i]
    return T
    # END SOLUTION


# %%
check("convolution.toeplitz")

# %% [markdown]
# ## Through the Fourier transform
#
# A Fourier transform $\mathcal F$ writes an image as a sum of waves. To shift a wave, you only multiply it by a number.
# So the convolution becomes a plain product for each frequency (Mathieu et al., 2014):
#
# $$y_{n,k} = \mathcal F^{-1}\Big( \sum_c \mathcal F(x_{n,c}) \odot \overline{\mathcal F(w_{k,c})} \Big).$$
#
# The bar is the complex conjugate: without it the window would be flipped. `torch.fft.rfft2(w, s=(H, W))` pads the
# filter with zeros to the size of the image, so that the spectra match. For real images half of the spectrum is enough,
# so it has only W // 2 + 1 columns, and you must tell `irfft2` the original size: `s=(H, W)`.
#
# Waves have no border: a window that extends beyond the right edge sees the left edge of the image. This only affects
# the outputs where the window does not fit into the image, beyond row $P$ and column $Q$. **Cut them off**; the rest is
# right. (If padding is given, add the zeros first.)
#
# The cost hardly depends on the size of the window. So this way is best for large windows (Vasilache et al., 2015).
#
# {{exercise conv_fft}}
#
# Write this formula for all images, channels and filters.
#
# <details><summary>Hint 1: one image, one channel</summary>
#
# Transform the image with `torch.fft.rfft2`. Do the same with the filter, padded to the image's size by `s=`, and take
# `.conj()`. Multiply the two, go back with `torch.fft.irfft2` (give it `s=`, too), and keep the first P rows and Q
# columns.
# </details>
# <details><summary>Hint 2: channels</summary>
#
# The spectra are (N, C, H, W // 2 + 1) and (K, C, H, W // 2 + 1), and the sum runs over c: `torch.einsum("nchw,kchw->nkhw", ...)`.
#
# </details>


# %%
def conv_fft(x, w, padding=0):
    """The convolution as a product of spectra.

    x: (N, C, H, W), w: (K, C, R, S), real; neither is changed. Returns y (N, K, P, Q),
    real, with P = H + 2 padding - R + 1.

    >>> conv_fft(torch.arange(1.0, 10.0).view(1, 1, 3, 3), torch.ones(1, 1, 2, 2))
    tensor([[[[12., 16.], [24., 28.]]]])
    """
    # BEGIN SOLUTION
    x = functional.pad(x, (padding,) * 4)
    size = x.shape[2:]
    P, Q = size[0] - w.shape[2] + 1, size[1] - w.shape[3] + 1
    spectra = torch.einsum("nchw,kchw->nkhw", torch.fft.rfft2(x), torch.fft.rfft2(w, s=size).conj())
    return torch.fft.irfft2(spectra, s=size)[..., :P, :Q]
    # END SOLUTION


# %%
check("convolution.conv_fft")

# %% [markdown]
# ## Fewer multiplications
#
# Nearly all of VGG-16 consists of 3 x 3 windows: 15 billion multiplications for one image, nine for each output and
# channel. The Fourier transform does not help, because the windows are too small. Can we do with fewer than nine? Begin
# with one dimension, and two neighbouring outputs of a filter with three weights:
#
# $$y_0 = d_0 g_0 + d_1 g_1 + d_2 g_2 \qquad y_1 = d_1 g_0 + d_2 g_1 + d_3 g_2$$
#
# These are six multiplications. How few are enough? And how many would you then need in two dimensions instead of nine?

# %%
vgg = [layer for layer in networks.vgg16() if layer.name.startswith("conv")]
direct = sum(layer.macs for layer in vgg)
print(f"VGG-16, {len(vgg)} layers of 3 x 3: {direct / 1e9:.1f} billion multiplications for an image")
for products, outputs in ((9, 1), (16, 4), (36, 16)):
    share = products / outputs / 9
    print(f"   {products:2} products, outputs {outputs:2}: {direct * share / 1e9:4.1f}, {1 / share:.2f} times fewer")

# %% [markdown]
# Four are enough, and fewer are not (Winograd 1980):
#
# $$\begin{aligned} m_1 &= (d_0 - d_2)\, g_0 & m_2 &= (d_1 + d_2)\,\tfrac{g_0 + g_1 + g_2}{2} & y_0 &= m_1 + m_2 + m_3\\
# m_4 &= (d_1 - d_3)\, g_2 & m_3 &= (d_2 - d_1)\,\tfrac{g_0 - g_1 + g_2}{2} & y_1 &= m_2 - m_3 - m_4 \end{aligned}$$
#
# Multiply it out: you get the same $y_0$ and $y_1$. You compute the sums of weights once for a filter, and use them for
# every tile of the image. In two dimensions do it along the rows and then along the columns. A tile of 4 x 4 pixels
# gives 2 x 2 outputs with $4 \cdot 4 = 16$ products, while the formula takes $4 \cdot 9 = 36$ (Lavin and Gray, 2016).
# That is the second line above: 2.25 times fewer.
#
# In the picture both ways do one product per step. Choose an output: which of the 16 products does it use, and with
# which sign?

# %%
winograd_products.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Winograd's tile is complete before the direct way has finished its second output. But none of its outputs is ready
# earlier: every output adds up nine of the *same* 16 products, some with a minus sign. You save multiplications, but
# need more additions and memory for intermediate numbers. A tile of 4 x 4 outputs takes 36 products instead of 144,
# with larger constants and more rounding.
# </details>
#
# ### Where the matrices come from
#
# As matrices, $y = A^T\big[(G g) \odot (B^T d)\big]$. Call it $F(m, r)$: it has $m$ outputs, $r$ weights, and $a = m +
# r - 1$ pixels, products and points. The values at $a$ points determine a polynomial of degree $a - 1$. So you can
# multiply two polynomials in three steps: take their values at $a$ points, multiply these values ($a$ products!), and
# find the polynomial through the results. Winograd's algorithm is this idea transposed, since a correlation is the
# transpose of a product of polynomials.
#
# Take the $a - 1$ simplest different numbers $t_0, t_1, \dots$. The last point is infinity, where the value of a
# polynomial is its leading coefficient. With
#
# $$N_i(t) = \prod_{j \ne i} (t - t_j), \qquad f_i = N_i(t_i), \qquad M(t) = \prod_j (t - t_j),$$
#
# | matrix | size | row or column $i$, for the number $t_i$ | the last one, for infinity |
# |---|---|---|---|
# | $A^T$ | $m \times a$ | column $(1, t_i, t_i^2, \dots, t_i^{m-1})$ | column $(0, \dots, 0, 1)$ |
# | $G$ | $a \times r$ | row $(1, t_i, t_i^2, \dots, t_i^{r-1}) \,/\, f_i$ | row $(0, \dots, 0, 1)$ |
# | $B^T$ | $a \times a$ | row: the coefficients of $N_i$, the constant first, then a 0 | row: the coefficients of $M$ |
#
# $B^T$ and $A^T$ contain whole numbers or nearly so. Only $G$ has real fractions, and you apply it to each filter only
# once. The points and the coefficients are given:

# %%
POINTS = [Fraction(t) for t in (0, 1, -1, 2, -2, "1/2", "-1/2", 3, -3)]


def polynomial(roots):
    """The coefficients of the product of all (t - root), the constant first.

    >>> polynomial([1, -1])  # t^2 - 1
    [Fraction(-1, 1), Fraction(0, 1), Fraction(1, 1)]
    """
    coefficients = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *coefficients], [root * c for c in coefficients] + [Fraction(0)]
        coefficients = [s - c for s, c in zip(shifted, scaled, strict=True)]
    return coefficients


# %% [markdown]
# {{exercise winograd_matrices}}
#
# Compute the three matrices of $F(m, r)$ exactly, as fractions.
#
# <details><summary>Hint 1: the polynomials</summary>
#
# `points = POINTS[: m + r - 2]`. The other points of point i are `points[:i] + points[i + 1 :]`; `polynomial` of them has the coefficients of $N_i$. And $f_i$ is the product of the differences: `math.prod(t - other for other in ...)`.
#
# </details>
# <details><summary>Hint 2: powers</summary>
#
# `[t**k for k in range(r)]` is a row of G before the division. `Fraction(0) ** 0` is 1, as it should be.
#
# </details>
# <details><summary>Hint 3: the point at infinity</summary>
#
# The last column of $A^T$, the last row of $G$ and the last row of $B^T$ belong to infinity. The first two are 0
# except for a 1 at the highest power. The third is the polynomial of all points; each other row of $B^T$ leaves its
# own point out, so it is one number shorter: add a zero.
# </details>


# %%
def winograd_matrices(m, r):
    """The matrices of F(m, r), exactly: A^T [(G g) * (B^T d)] are the m outputs of a filter
    g (r) on pixels d (m + r - 1).

    Returns (A_T, G, B_T), m x a, a x r and a x a with a = m + r - 1: lists of rows of
    fractions.Fraction.

    >>> A_T, G, B_T = winograd_matrices(2, 3)
    >>> G[1]
    [Fraction(1, 2), Fraction(1, 2), Fraction(1, 2)]
    """
    # BEGIN SOLUTION
    points, G, B_T = POINTS[: m + r - 2], [], []
    A_T = [[t**i for t in points] + [Fraction(int(i == m - 1))] for i in range(m)]
    for i, t in enumerate(points):
        others = points[:i] + points[i + 1 :]
        f = math.prod(t - other for other in others)
        G.append([t**k / f for k in range(r)])
        B_T.append([*polynomial(others), Fraction(0)])
    G.append([Fraction(int(k == r - 1)) for k in range(r)])
    B_T.append(polynomial(points))
    return A_T, G, B_T
    # END SOLUTION


# %%
check("convolution.winograd_matrices")

# %% [markdown]
# ### The whole layer
#
# In two dimensions, for a tile $d$ of $a \times a$ pixels and a filter $g$ of $r \times r$ weights,
#
# $$U = G\, g\, G^T, \qquad V = B^T d\, B, \qquad Y = A^T \Big[\sum_c U_{k,c} \odot V_c\Big] A,$$
#
# and $Y$ is a tile of $m \times m$ outputs. The tiles of pixels overlap by $r - 1$. Most of the work is in the sum over
# channels. At each of the $a^2$ positions of a tile it is a matrix product, $(K \times C)$ times $(C \times \text{all
# tiles of all images})$. So the layer is **one batched product**, `matmul(U, V)` with U (a², K, C) and V (a², C,
# tiles). Transform the filters once, not for every tile, and use `matmul` only for this product: the check counts.
#
# {{exercise conv_winograd}}
#
# Write the convolution with these tiles.
#
# <details><summary>Hint 1: pad, and cut into tiles</summary>
#
# Tiles must be whole: `functional.pad(x, (0, -Q % m, 0, -P % m))` adds the missing zeros on the right and below.
# `x.unfold(2, a, m).unfold(3, a, m)` are the tiles, (N, C, rows, columns, a, a).
#
# </details>
# <details><summary>Hint 2: transforms</summary>
#
# `G @ w @ G.T` transforms the last two axes of all filters at once, and `B_T @ tiles @ B_T.T` does it for all tiles. To
# turn the matrices into tensors, use `torch.tensor([[float(v) for v in row] for row in rows], dtype=x.dtype)`.
#
# </details>
# <details><summary>Hint 3: shapes on the way</summary>
#
# Bring the filters to (a·a, K, C) and the tiles to (a·a, C, N · rows · columns): `.permute` first, then `.reshape`.
# One `matmul` of the two gives (a·a, K, N · rows · columns). Split its dimensions again with `.view`, and move the two
# of length a to the end for the transform by $A^T$. It leaves (N, K, rows, columns, m, m); put each m next to its
# tiles before you join them, and cut off what exceeds P and Q.
# </details>


# %%
def conv_winograd(x, w, m=2, matmul=torch.matmul):
    """The convolution by Winograd's tiles of m x m outputs; stride 1, no padding.

    x: (N, C, H, W), w: (K, C, r, r), of the same dtype. Returns y (N, K, H - r + 1,
    W - r + 1); also for sizes that are not multiples of m. `matmul` gets the transformed
    filters and tiles, and does all products of the two.

    >>> conv_winograd(torch.arange(1.0, 10.0).view(1, 1, 3, 3), torch.ones(1, 1, 3, 3))
    tensor([[[[45.]]]])
    """
    # BEGIN SOLUTION
    (N, C, H, W), (K, _, r, _) = x.shape, w.shape
    P, Q, a = H - r + 1, W - r + 1, m + r - 1
    A_T, G, B_T = (
        torch.tensor([[float(v) for v in row] for row in rows], dtype=x.dtype) for rows in winograd_matrices(m, r)
    )
    tiles = functional.pad(x, (0, -Q % m, 0, -P % m)).unfold(2, a, m).unfold(3, a, m)
    rows, columns = tiles.shape[2:4]
    U = (G @ w @ G.T).permute(2, 3, 0, 1).reshape(a * a, K, C)
    V = (B_T @ tiles @ B_T.T).permute(4, 5, 1, 0, 2, 3).reshape(a * a, C, -1)
    M = matmul(U, V).view(a, a, K, N, rows, columns)
    Y = A_T @ M.permute(3, 2, 4, 5, 0, 1) @ A_T.T
    return Y.transpose(3, 4).reshape(N, K, rows * m, columns * m)[:, :, :P, :Q]
    # END SOLUTION


# %%
check("convolution.conv_winograd")

# %% [markdown]
# ## What each of them costs
#
# Before you measure, count. Two numbers matter most: the multiplications, and the bytes that move to and from memory.
# Every algorithm reads x and w and writes y once. It writes its intermediate arrays once and reads them once. Numbers
# have 4 bytes, complex ones 8. Count only products of data and weights, not the constants inside the transforms.
#
# | algorithm | multiplications | intermediate arrays |
# |---|---|---|
# | `direct` | one for each weight of a filter at each output, in all channels | nothing |
# | `im2col` | the same | the columns of all images |
# | `toeplitz` | the same | the non-zeros of one T for all K filters and C channels: for each its number (4 bytes) and its row and column (8 each) |
# | `winograd_2x2`, `winograd_4x4` | $(m+2)^2$ for each tile, filter and channel | U, V and the sums over channels M |
# | `fft` | 4 for each frequency, image, filter and channel: a complex product is four real ones | the spectra of x, w and y |
#
# The tiles cover P x Q outputs; count the tiles at the border as whole tiles. The textbook's Fourier transform needs
# sizes that are powers of two, so count with these (your `conv_fft` takes any size): $a \ge H + 2\,\text{padding}$ and
# $b \ge W + 2\,\text{padding}$, with $a \times (b/2 + 1)$ frequencies (rounded down).
#
# A `Problem` has these letters as attributes:

# %%
problem = Problem(N=1, C=256, H=56, W=56, K=256, R=3, S=3, padding=1)  # a layer of VGG-16
print(problem.P, problem.Q, problem.stride, problem.padding)

# %% [markdown]
# {{exercise conv_cost}}
#
# Count the multiplications and the bytes of each algorithm by this table.
#
# <details><summary>Hint 1: the plan</summary>
#
# Compute `multiplications` and `between` (in bytes) for each algorithm; the bytes are then `4 * (x + w + y) + 2 * between`, for all of them.
#
# </details>
# <details><summary>Hint 2: tiles and powers</summary>
#
# `-(-n // m)` is n / m rounded up. The number of tiles is N times P / m rounded up times Q / m rounded up. `1 << (n -
# 1).bit_length()` is the smallest power of two that is at least n.
#
# </details>
# <details><summary>Hint 3: three sets each time</summary>
#
# Winograd: $a^2$ numbers for each of K C filters, tiles · C tiles and tiles · K sums. Fourier: all frequencies for each of N C images, K C filters and N K outputs.
#
# </details>


# %%
def conv_cost(algorithm, problem):
    """The multiplications of an algorithm and the bytes it moves, (multiplications, bytes).

    algorithm: "direct", "im2col", "toeplitz", "winograd_2x2", "winograd_4x4" or "fft";
    problem: a `Problem` with N, C, H, W, K, R, S, P, Q, stride and padding. Winograd's
    problems are 3x3 with stride 1.

    >>> # 4 outputs, 4 weights; 9 + 4 + 4 numbers
    >>> conv_cost("direct", Problem(N=1, C=1, H=3, W=3, K=1, R=2, S=2))
    (16, 68)
    """
    # BEGIN SOLUTION
    N, C, H, W, K, R, S = (getattr(problem, letter) for letter in "NCHWKRS")
    P, Q, border = problem.P, problem.Q, 2 * problem.padding
    multiplications, between = N * K * P * Q * C * R * S, 0
    if algorithm == "im2col":
        between = 4 * N * C * R * S * P * Q
    elif algorithm == "toeplitz":
        between = (4 + 8 + 8) * K * P * Q * C * R * S
    elif algorithm.startswith("winograd"):
        m = int(algorithm[-1])
        tiles, a = N * -(-P // m) * -(-Q // m), m + 2
        multiplications, between = a * a * tiles * K * C, 4 * a * a * (K * C + tiles * C + tiles * K)
    elif algorithm == "fft":
        a, b = (1 << (n + border - 1).bit_length() for n in (H, W))
        frequencies = a * (b // 2 + 1)
        multiplications, between = 4 * frequencies * N * K * C, 8 * frequencies * (N * C + K * C + N * K)
    return multiplications, 4 * (N * C * H * W + K * C * R * S + N * K * P * Q) + 2 * between
    # END SOLUTION


# %%
check("convolution.conv_cost")

# %% [markdown]
# What do your counts predict for three layers?

# %%
guess(
    "convolution.winograd",
    "A layer of VGG-16 with 3 x 3 windows takes 1,850 million multiplications directly. How many with Winograd's 4 x "
    "4 tiles?",
    unit="million",
)

# %%
guess(
    "convolution.fourier",
    "13 x 13 windows: by what factor does the Fourier transform reduce the multiplications?",
    unit="times",
)

# %%
with when_solved():
    guessed("convolution.winograd")
    guessed("convolution.fourier")
    layers = {
        "LeNet-5 conv1": Problem(N=1, C=1, H=32, W=32, K=6, R=5, S=5),
        "VGG-16 conv3_2": Problem(N=1, C=256, H=56, W=56, K=256, R=3, S=3, padding=1),
        "13x13 windows": Problem(N=1, C=64, H=64, W=64, K=64, R=13, S=13, padding=6),
    }
    for name, problem in layers.items():
        possible = [one for one in ALGORITHMS if (problem.R, problem.S) == (3, 3) or "winograd" not in one]
        costs = {algorithm: conv_cost(algorithm, problem) for algorithm in possible}
        print(f"{name:15} {'multiplications':>16} {'kilobytes':>12} {'per byte':>9}")
        for algorithm, (multiplications, nbytes) in costs.items():
            print(f"  {algorithm:13} {multiplications:16,} {nbytes / 1e3:12,.0f} {multiplications / nbytes:9.2f}")
    reveal("convolution.winograd", conv_cost("winograd_4x4", layers["VGG-16 conv3_2"])[0] / 1e6)
    direct, fourier = (conv_cost(algorithm, layers["13x13 windows"])[0] for algorithm in ("direct", "fft"))
    reveal("convolution.fourier", direct / fourier)

# %% [markdown]
# Counts are not times. A processor may do ten multiplications while it loads one number from memory, and a matrix
# product may run ten times as fast as a loop. So race the algorithms.
#
# Below, the algorithms of the course's library run on images of 32 x 32 pixels, on one thread, with kernels from 1 x 1
# to 15 x 15. The dots are measured while you watch. The lines are predicted from the counts and two numbers about this
# machine: how fast it multiplies matrices and how fast it copies memory. The vertical lines are the crossovers,
# measured and predicted (dashed). From a crossover on, Fourier is the fastest of our algorithms.
#
# 1. From which kernel on is Fourier the fastest? Now set the channels to 1. Why is it no longer worthwhile?
# 2. Look at the smallest kernels: are the dots above or below their lines, and what do the counts leave out?
# 3. Set the batch to 8. Which algorithm gains most per image, and why?

# %%
convolution_race.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. In our runs with one image, from 9 x 9 or 11 x 11 on. With one channel it never is, because it needs three
#    transforms for a single product. With more channels, more products share a transform. (With 16 channels and more
#    the direct way is the fastest for longer than predicted. Its products use the processor's vectors well, while
#    Fourier's are many small complex products.)
# 2. The dots are far above, because every call takes some microseconds, whatever it computes. The counts also leave out
#    the transforms.
# 3. Fourier: it computes the filters' spectra once for the whole batch. The crossover moves down, to 5 x 5 in our runs.
# </details>

# %% [markdown]
# ## On the GPU: programs and masks
#
# A kernel is a function that many **programs** run at the same time. Each has a number, `tl.program_id(0)`, and works
# on a block of elements at once: `i` below is not one index but BLOCK of them. For a tensor you get the place in memory
# where it begins; `x + i` are BLOCK places. The last block may reach beyond the end, so you need a **mask**. Here is a
# very simple kernel, $y = \max(x, 0)$:

# %%


@triton.jit
def relu_kernel(x, y, end, BLOCK: tl.constexpr):
    """One program: BLOCK elements of y = max(x, 0), as far as they are before `end`."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, mask=i < end, other=0.0)
    tl.store(y + i, tl.maximum(values, 0.0), mask=i < end)


def relu_of_20(end: int) -> torch.Tensor:
    """Three programs of 8: y is the first 20 of 24 elements in memory; the last four
    belong to another tensor."""
    x, memory = torch.linspace(-1, 1, 24).to(DEVICE), torch.full((24,), 7.0).to(DEVICE)
    run(relu_kernel, 3, x, memory, end, BLOCK=8)
    return memory.cpu()


try:
    for end in (20, 24):
        print(f"mask i < {end}: {' '.join(f'{value:.1f}' for value in relu_of_20(end).tolist())}")
except ImportError as error:  # there is no Triton here
    print(error)

# %% [markdown]
# With the right mask the four sevens are not changed. With a mask of 24, or without one, the third program overwrites
# them without any error. On a GPU they would belong to another tensor. Change BLOCK to 16: how many programs does it
# take now?
#
# ## A matrix that is never stored
#
# A GPU multiplies matrices in blocks of, for example, 16 x 16, and has special units for this (tensor cores). So im2col
# would suit it. But its matrix is R S times as large as the image, and a GPU spends most of its time waiting for
# memory. The solution is the **implicit** matrix product. Each program computes one block of y, and whenever it needs a
# block of the im2col matrix, it collects these numbers from the image itself. The matrix is never stored. It exists
# only as a rule that tells where to find its number (pixel, weight).
#
# Think of y as a matrix with a row for each output pixel $(n, p, q)$, numbered $0 \dots N P Q - 1$, and a column for
# each filter $k$. A program computes BLOCK rows and BLOCK columns of it. It sums over the weights $(c, r, s)$, numbered
# $0 \dots C R S - 1$, BLOCK at a time:
#
# | number | belongs to | place in memory |
# |---|---|---|
# | image pixel, for output $m$ and weight $d$ | $n = m \,//\, (PQ)$, $p = m \,//\, Q \,\%\, P$, $q = m \,\%\, Q$; $c = d \,//\, (RS)$, $r = d \,//\, S \,\%\, R$, $s = d \,\%\, S$ | `x + ((n * C + c) * H + h) * W + v` with $h = p\,\text{stride} + r - \text{padding}$, and $v$ likewise |
# | weight $d$ of filter $k$ | | `w + k * (C * R * S) + d` |
# | output $m$ of filter $k$ | $n$, $p$, $q$ as above | `y + ((n * K + k) * P + p) * Q + q` |
#
# A GPU does not check indices. A program that reads beyond the end of a tensor gets other data, and a write destroys
# other data. So every `tl.load` and `tl.store` needs a **mask**. It is false for pixels beyond N P Q, filters beyond K,
# weights beyond C R S, and for $h$, $v$ outside the image. This mask is all that padding needs.
#
# The kernel is written in Triton. Without a GPU, Triton's interpreter runs it here, line by line and slowly, but with
# the same results. So use small images. `launch` starts the kernel. For the check, `launch_in` puts x, w and y into one
# piece of memory with guards between them.

# %%
BLOCK = 16


def launch(x, w, y, stride=1, padding=0):
    """Run conv_kernel on x (N, C, H, W) and w (K, C, R, S); each program writes BLOCK pixels of BLOCK filters of y."""
    (N, C, H, W), (K, _, R, S), (_, _, P, Q) = x.shape, w.shape, y.shape
    programs = math.ceil(N * P * Q / BLOCK) * math.ceil(K / BLOCK)
    run(conv_kernel, programs, x, w, y, N, C, H, W, K, R, S, P, Q, stride, padding, BLOCK=BLOCK)


def launch_in(memory, x_shape, w_shape, stride=1, padding=0, guard=4096):
    """Run it in a copy of `memory`, where x, w and y follow each other between guards;
    return the copy."""
    memory, places, start = memory.to(DEVICE, copy=True), [], guard
    (N, _, H, W), (K, _, R, S) = x_shape, w_shape
    y_shape = N, K, (H + 2 * padding - R) // stride + 1, (W + 2 * padding - S) // stride + 1
    for shape in (x_shape, w_shape, y_shape):
        places.append(memory[start : start + math.prod(shape)].view(shape))
        start += math.prod(shape) + guard
    launch(*places, stride, padding)
    return memory.cpu()


# %% [markdown]
# {{exercise conv_kernel}}
#
# Write the program that computes one block of y. It must be a kernel that Triton could compile: use its arguments, variables of your own, numbers, `range`, what `tl` has, and functions of yours under `@triton.jit`; no `int(...)`, no NumPy, no torch.
#
# <details><summary>Hint 1: which block is mine?</summary>
#
# There are `tl.cdiv(K, BLOCK)` blocks of filters for each block of pixels. With `i = tl.program_id(0)` take block `i //
# blocks` of the pixels and block `i % blocks` of the filters: `m = i // blocks * BLOCK + tl.arange(0, BLOCK)`, and `k`
# likewise.
#
# </details>
# <details><summary>Hint 2: vectors that make matrices</summary>
#
# `n`, `p`, `q` are vectors over the rows, `c`, `r`, `s` vectors over the columns of a block. `p[:, None]` is a column and `r[None, :]` a row, and their sum is a matrix: `h = (p * stride - padding)[:, None] + r[None, :]`.
#
# </details>
# <details><summary>Hint 3: the frame</summary>
#
# ```python
# acc = tl.zeros((BLOCK, BLOCK), tl.float32)
# for start in range(0, C * R * S, BLOCK):
#     d = start + tl.arange(0, BLOCK)
#     c, r, s = ...
#     h, v = ...
#     inside = (h >= 0) & (h < H) & ... & (m < N * P * Q)[:, None] & (d < C * R * S)[None, :]
#     a = tl.load(x + ..., mask=inside, other=0.0)                    # (pixels, weights)
#     b = tl.load(w + ..., mask=..., other=0.0)                       # (weights, filters)
#     acc += tl.dot(a, b, input_precision="ieee")
# tl.store(y + ..., acc, mask=(m < N * P * Q)[:, None] & (k < K)[None, :])
# ```
#
# (In a kernel it is best to assign one name per line: `c = ...`, `r = ...`.)
#
# </details>


# %%
@triton.jit
def conv_kernel(x, w, y, N, C, H, W, K, R, S, P, Q, stride, padding, BLOCK: tl.constexpr):
    """The convolution y (N, K, P, Q) of x (N, C, H, W) with w (K, C, R, S), as an implicit
    matrix product.

    x, w and y are where the tensors begin; all are float32 and without gaps. This is one of
    ceil(N P Q / BLOCK) * ceil(K / BLOCK) programs. It writes BLOCK output pixels of BLOCK
    filters, and nothing else. It reads nothing outside of x and w.
    """
    # BEGIN SOLUTION
    blocks = tl.cdiv(K, BLOCK)
    m = tl.program_id(0) // blocks * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    n, p, q = m // (P * Q), m // Q % P, m % Q
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, C * R * S, BLOCK):
        d = start + tl.arange(0, BLOCK)
        c, r, s = d // (R * S), d // S % R, d % S
        h = (p * stride - padding)[:, None] + r[None, :]
        v = (q * stride - padding)[:, None] + s[None, :]
        inside = (h >= 0) & (h < H) & (v >= 0) & (v < W) & (m < N * P * Q)[:, None] & (d < C * R * S)[None, :]
        a = tl.load(x + ((n[:, None] * C + c[None, :]) * H + h) * W + v, mask=inside, other=0.0)
        real = (d < C * R * S)[:, None] & (k < K)[None, :]
        b = tl.load(w + k[None, :] * (C * R * S) + d[:, None], mask=real, other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    to = y + ((n[:, None] * K + k[None, :]) * P + p[:, None]) * Q + q[:, None]
    tl.store(to, acc, mask=(m < N * P * Q)[:, None] & (k < K)[None, :])
    # END SOLUTION


# %%
check("convolution.conv_kernel")

# %% [markdown]
# What does your kernel compute? Here it finds the edges of a handwritten digit with two filters that we chose: one for
# edges between left and right, and one for edges between above and below.

# %%
with when_solved():
    passed("convolution.conv_kernel")
    image = digits().x[:1].contiguous()
    sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
    filters = torch.stack([sobel, sobel.T])[:, None].contiguous()
    edges = torch.empty(1, 2, 8, 8)
    x, w, y = (t.to(DEVICE) for t in (image, filters, edges))
    launch(x, w, y, padding=1)
    edges = y.cpu()
    print(f"largest difference to conv_direct: {(edges - conv_direct(image, filters, padding=1)).abs().max():.1e}")
    _, places = plt.subplots(1, 3, figsize=(7.5, 2.6))
    for place, picture, title in zip(
        places, (image[0, 0], edges[0, 0], edges[0, 1]), ("the image", "left and right", "above and below")
    ):
        place.imshow(picture, cmap="gray_r" if title == "the image" else "RdBu")
        place.set_title(title)
        place.axis("off")
    plt.show()

# %% [markdown]
# ## The layers of real networks
#
# LeNet-5 (LeCun et al., 1998) read the digits on cheques. VGG-16 (Simonyan and Zisserman, 2015) has only 3x3 windows.
# Your functions, the course's library and PyTorch run layers of both, one image at a time and on one thread. The bars
# show speeds relative to PyTorch: 1 is as fast, 0.1 is ten times slower. Functions that would move more than 300 MB by
# your own `conv_cost` do not run.
#
# Before you run it: which of your functions will be best on which layer?

# %%
guess(
    "convolution.im2col",
    "VGG-16's conv3_2: how many times as fast as your conv_im2col is PyTorch?",
    unit="times",
)

# %%
LAYERS = {
    "LeNet-5 conv1": Problem(N=1, C=1, H=32, W=32, K=6, R=5, S=5),
    "LeNet-5 conv2": Problem(N=1, C=6, H=14, W=14, K=16, R=5, S=5),
    "VGG-16 conv1_1": Problem(N=1, C=3, H=224, W=224, K=64, R=3, S=3, padding=1),
    "VGG-16 conv3_2": Problem(N=1, C=256, H=56, W=56, K=256, R=3, S=3, padding=1),
}
YOURS = {
    "direct": conv_direct,
    "im2col": conv_im2col,
    "winograd_2x2": lambda x, w, padding=0: conv_winograd(functional.pad(x, (padding,) * 4), w, 2),
    "winograd_4x4": lambda x, w, padding=0: conv_winograd(functional.pad(x, (padding,) * 4), w, 4),
    "fft": conv_fft,
}


def contestants(problem):
    """All functions of x, w and padding that can compute this layer and have enough
    memory for it."""
    found = {"PyTorch": functional.conv2d}
    for name, yours in YOURS.items():
        possible = (problem.R, problem.S) == (3, 3) or "winograd" not in name
        if possible and conv_cost(name, problem)[1] <= 300e6:
            found[f"your {name}"] = yours
            found[f"library: {name}"] = ALGORITHMS[name]
    return found


def timed(f, *arguments, **options):
    """The result of f, and the least seconds of three runs after a first one."""
    result, seconds = f(*arguments, **options), []
    for _ in range(3):
        start = time.perf_counter()
        f(*arguments, **options)
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


with when_solved():
    guessed("convolution.im2col")
    speeds = {}
    for layer, problem in LAYERS.items():
        generator = torch.Generator().manual_seed(5)
        x, w = (torch.randn(shape, generator=generator) for shape in (problem.x_shape, problem.w_shape))
        right = functional.conv2d(x.double(), w.double(), padding=problem.padding)
        seconds, errors = {}, {}
        for name, f in progress(contestants(problem).items(), f"{layer}: algorithm"):
            y, seconds[name] = timed(f, x, w, padding=problem.padding)
            errors[name] = ((y - right).abs().max() / right.abs().max()).item()
        worst = max(errors, key=errors.get)
        print(f"{layer}: PyTorch {1e3 * seconds['PyTorch']:.2f} ms; largest error {errors[worst]:.0e}, {worst}")
        speeds[layer] = {name: seconds["PyTorch"] / s for name, s in seconds.items() if name != "PyTorch"}

    _, places = plt.subplots(2, 2, figsize=(9.6, 7), layout="constrained")
    for place, (layer, relative) in zip(places.flat, speeds.items()):
        colours = [style.BLUE if name.startswith("your") else style.GREEN for name in relative]
        place.barh(list(relative), list(relative.values()), color=colours)
        place.axvline(1, color=style.INK, linewidth=1)
        place.set(xscale="log", xlim=(0.01, 10), xlabel="speed, PyTorch = 1")
        place.set_title(layer)
        place.invert_yaxis()
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - LeNet's layers are so small that the multiplications take little time. The number of calls and copies matters:
#   `conv_direct` makes a product for each of the 25 places of the window, `conv_im2col` only one.
# - VGG's conv1_1 has three input channels, so only 27 weights for each output. That is a small matrix and one product,
#   which suits im2col best.
# - conv3_2 has 1.85 billion products, and nearly all the time goes into matrix products, so all functions are within a
#   small factor of PyTorch. Fourier does not run: it would write and read spectra of 1.1 GB.
# - Winograd's tiles need 2.25 or 4 times fewer multiplications, but your version hardly gains from it. By your table it
#   has 8 to 12 multiplications for each byte, while the direct way has 200. The time goes into moving U, V and M. The
#   library's version works on the tiles block by block, so that these arrays never leave the cache.
# - The 4 x 4 tiles have the largest error, ten times as large as the others' but still small. Look at the 64 in their
#   picture: large numbers cancel.
# </details>

# %% [markdown]
# Last, race your own algorithms, with lines from your own counts. `conv_kernel` is not among them, since an interpreter
# would be too slow.

# %%
with when_solved():
    conv_cost("direct", problem)  # the race needs your counts
    display(convolution_race.explorable({**YOURS, "torch": functional.conv2d}, conv_cost))

# %% [markdown]
# ## The backward pass
#
# To train the network, the layer gets the gradient $\partial L/\partial y$ of its outputs. It must compute two more:
# $\partial L/\partial w$ to change the filters, and $\partial L/\partial x$ for the layer before. Write dP for
# $\partial L/\partial P$, and take the lecture's example once more, with pixels A … J, weights α β γ δ, and outputs P Q
# R S. Guess on paper, then check with the picture:
#
# 1. Which outputs does the pixel E reach, and through which weights? So what is dE? And dA, in a corner?
# 2. Which pixels does α meet while the window slides? So what is dα?
# 3. You have seen sums like these two. What are they?

# %%
conv_gradient.explorable()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. E is in all four outputs: dE = δ dP + γ dQ + β dR + α dS. In P it met the *last* weight, δ, in S the first. A is
#    only in P, so dA = α dP.
# 2. α met A, B, D and E, one for each output: dα = A dP + B dQ + D dR + E dS.
# 3. Both are convolutions. For dx the **flipped** filter slides over dy with a ring of zeros, as in mathematics. For dw
#    the gradient dy itself is the window, and slides over the image.
# </details>
#
# With batch and channels, for stride 1:
#
# $$dw_{k,c}(i, j) = \sum_n \sum_{p,q} dy_{n,k}(p, q)\; x_{n,c}(p + i, q + j), \qquad
# dx_{n,c}(h, v) = \sum_k \sum_{i,j} w_{k,c}(i, j)\; dy_{n,k}(h - i, v - j).$$
#
# Compare with the formula of exercise 1, which sums over the channels. dw sums over the **images** instead, so exchange
# batch and channels in x and dy, and in the result. dx sums over the **filters**, so exchange K and C in w. Then your
# own convolution computes both. (For stride $t$, first put $t - 1$ zeros between neighbours in dy.)


# %%
yours = conv_im2col  # conv_direct and conv_fft can do it, too


class Conv(torch.autograd.Function):
    """Your convolution, with gradients from your convolution: stride 1, square windows."""

    @staticmethod
    def forward(ctx, x, w, padding):
        ctx.save_for_backward(x, w)
        ctx.padding = padding
        return yours(x.detach(), w.detach(), padding=padding)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        flipped = w.flip(2, 3).transpose(0, 1)
        dx = yours(dy, flipped, padding=w.shape[2] - 1 - ctx.padding)
        dw = yours(x.transpose(0, 1), dy.transpose(0, 1), padding=ctx.padding)
        return dx, dw.transpose(0, 1), None


with when_solved():
    print("largest difference to torch's autograd, float64:")
    for C, K, R, padding in ((1, 1, 2, 0), (3, 4, 3, 0), (3, 4, 3, 1), (4, 2, 5, 2)):
        drawn = {"generator": torch.Generator().manual_seed(5), "dtype": torch.float64}
        x = torch.randn(2, C, 7, 9, **drawn).requires_grad_()
        w = torch.randn(K, C, R, R, **drawn).requires_grad_()
        theirs = functional.conv2d(x, w, padding=padding)
        dy = torch.randn(theirs.shape, **drawn)
        right = torch.autograd.grad(theirs, (x, w), dy)
        found = torch.autograd.grad(Conv.apply(x, w, padding), (x, w), dy)
        dx, dw = ((ours - true).abs().max().item() for ours, true in zip(found, right))
        print(f"  C = {C}, K = {K}, {R} x {R}, padding {padding}: dx {dx:.0e}, dw {dw:.0e}")

    layer = {"H": 56, "W": 56, "padding": 1}  # VGG-16's conv3_2, counted by your conv_cost
    ways = {
        "y": Problem(N=1, C=256, K=256, R=3, S=3, **layer),
        "dx": Problem(N=1, C=256, K=256, R=3, S=3, **layer),  # images dy, K and C exchanged
        "dw": Problem(N=256, C=1, K=256, R=56, S=56, **layer),  # the window is dy
    }
    for name, way in ways.items():
        print(f"{name:2}: {conv_cost('direct', way)[0]:,} multiplications")

# %% [markdown]
# So the backward pass takes **twice** the multiplications of the forward pass. This is the lecture's rule for training.
# Without padding a layer takes a little more, since dx has H W places and y only P Q.
#
# ### Pooling
#
# Between its convolutions a network makes the image smaller. **Mean pooling** takes the mean of each 2 x 2 pixels,
# which is a convolution with equal weights and stride 2. **Max pooling** takes the largest of the four, and has no
# weights. Predict before you look at the picture: which pixels get the gradient? And what happens if two are equally
# large?


# %%
class MaxPool(torch.autograd.Function):
    """The largest of each 2 x 2 pixels; the gradient goes back to its place."""

    @staticmethod
    def forward(ctx, x):
        tiles = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)  # (N, C, P, Q, 4)
        y, winners = tiles.max(4)  # the first one among equals
        ctx.save_for_backward(winners)
        return y

    @staticmethod
    def backward(ctx, dy):
        (winners,), (N, C, P, Q) = ctx.saved_tensors, dy.shape
        tiles = functional.one_hot(winners, 4) * dy[..., None]
        tiles = tiles.view(N, C, P, Q, 2, 2).transpose(3, 4)  # as the pixels lie
        return tiles.reshape(N, C, 2 * P, 2 * Q)


with when_solved():
    pixels = torch.tensor([[1.0, 3, 2, 2], [4, 2, 1, 2], [0, 0, 5, 6], [0, 0, 8, 7]])
    x, dy = pixels.view(1, 1, 4, 4).requires_grad_(), torch.tensor([[[[4.0, 8], [12, 16]]]])
    largest = MaxPool.apply(x)
    mean = conv_im2col(x.detach(), torch.full((1, 1, 2, 2), 0.25), stride=2)
    ways = {
        "max": (largest, torch.autograd.grad(largest, x, dy)[0]),
        "mean": (mean, torch.autograd.grad(functional.avg_pool2d(x, 2), x, dy)[0]),
    }
    _, places = plt.subplots(2, 4, figsize=(8, 4), width_ratios=[4, 2, 2, 4])
    for row, (way, (y, dx)) in zip(places, ways.items()):
        tables = {"x": x, f"y = {way}": y, "dy": dy, "dx": dx}
        for place, (title, table) in zip(row, tables.items()):
            numbers = table.detach()[0, 0].numpy()
            place.imshow(numbers, cmap="Blues", vmin=0, vmax=24)
            for (i, j), number in np.ndenumerate(numbers):
                place.text(j, i, f"{number:g}", ha="center", va="center", fontsize=10)
            place.set_title(title, fontsize=11)
            place.axis("off")
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - With max pooling, the largest pixel gets all of dy and the others get nothing, because a small change of theirs
#   would not change the output. With mean pooling each pixel gets a quarter.
# - If two are equal, the maximum has a kink and no derivative, so the library must choose. `torch.max` and `max_pool2d`
#   take the first, `torch.amax` shares the gradient evenly. After a ReLU most ties are between zeros, and there the
#   ReLU's slope of 0 stops the gradient.
# </details>
#
# ### Read the digits
#
# Here is a small LeNet with convolution, ReLU and pooling, twice, and then one matrix: 1,864 weights in all. It trains
# with your convolution in both passes. For comparison, the same network takes the same steps with PyTorch's
# convolution, pooling and gradients, all in float64. How far apart will their losses be after 184 steps?

# %%
guess(
    "convolution.digits",
    "Eight epochs: how many of 359 held-out digits will it read wrongly?",
    unit="digits",
)


# %%
def network(weights, x, conv, pool):
    """Digits x (n, 1, 8, 8) to logits (n, 10)."""
    for w in weights[:2]:
        x = pool(conv(x, w, 1).relu())
    return x.flatten(1) @ weights[2]


def beginning():
    """Two layers of 3 x 3 filters and a matrix, always the same, and their optimizer."""
    generator, weights = torch.Generator().manual_seed(0), []
    for shape, n in {(8, 1, 3, 3): 9, (16, 8, 3, 3): 72, (64, 10): 64}.items():
        w = torch.randn(shape, generator=generator, dtype=torch.float64) * (2 / n) ** 0.5
        weights.append(w.requires_grad_())
    return weights, torch.optim.SGD(weights, lr=0.05, momentum=0.9)


def learn(weights, optimizer, layers, x, labels):
    """Take one step; return the loss before it."""
    loss = functional.cross_entropy(network(weights, x, *layers), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def draw_curves(state, axes):
    epochs = range(len(state["train"]))
    axes.plot(epochs, state["train"], "o-", color=style.BLUE, label="digits it learns from")
    axes.plot(epochs, state["held_out"], "s-", color=style.ORANGE, label="held-out digits")
    axes.set(xlim=(-0.2, EPOCHS + 0.2), ylim=(0, 1.03), xlabel="epoch")
    axes.set_ylabel("fraction read correctly")
    axes.legend(loc="lower right")
    right = f"{100 * state['held_out'][-1]:.1f} % of the held-out digits are read correctly"
    apart = f"Losses differ by {state['apart']:.0e} at most."
    return f"After {len(epochs) - 1} epochs {right}. {apart}"


EPOCHS = 8
OWN = Conv.apply, MaxPool.apply
TORCHS = (
    lambda x, w, padding: functional.conv2d(x, w, padding=padding),
    lambda x: functional.max_pool2d(x, 2),
)
with when_solved():
    guessed("convolution.digits")
    split, own, torchs = digits(), beginning(), beginning()
    sets = {
        "train": (split.x.double(), split.y),
        "held_out": (split.x_held_out.double(), split.y_held_out),
    }
    history = {"train": [], "held_out": [], "apart": 0.0}
    order, seconds = torch.Generator().manual_seed(0), [0.0, 0.0]
    with LiveFigure(draw_curves) as live:
        for epoch in range(EPOCHS + 1):
            mixed = torch.randperm(len(split.y), generator=order)
            for batch in mixed.split(64) if epoch else ():
                x, labels = sets["train"][0][batch], split.y[batch]
                times, losses = [time.perf_counter()], []
                for net, layers in ((own, OWN), (torchs, TORCHS)):
                    losses.append(learn(*net, layers, x, labels))
                    times.append(time.perf_counter())
                history["apart"] = max(history["apart"], abs(losses[0] - losses[1]))
                seconds = [s + b - a for s, a, b in zip(seconds, times, times[1:])]
            for name, (x, labels) in sets.items():
                with torch.no_grad():
                    answers = network(own[0], x, *OWN).argmax(1)
                history[name].append((answers == labels).double().mean().item())
            live.update(history)
    print(f"{yours.__name__}: {seconds[0]:.1f} s; PyTorch: {seconds[1]:.1f} s")
    reveal("convolution.digits", (answers != split.y_held_out).sum().item())

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - About 95 % of the held-out digits are read correctly, and you did not write a gradient for the whole network. Each
#   layer has its own backward pass, and autograd calls them one after the other.
# - The losses of all 184 steps agree to less than 10⁻¹²: the gradients are the same numbers, up to the order of their
#   sums.
# - PyTorch takes a fraction of the time. Set `yours = conv_direct` and train again: you get the same curve, but more
#   slowly. For dw the window is as large as the image, with 64 places in the first layer. `conv_direct` makes a small
#   product for each place, `conv_im2col` one for all. `conv_fft` gives this curve, too.
# </details>

# %% [markdown]
# ## Catch the impostors
#
# A good test makes a wrong program give a wrong answer. So far the checks have tested you. Now you write the tests.
#
# Eight programs, **A** to **H**, claim to be the convolution of exercise 1. Four of them are right, each written in its
# own way. The other four are impostors, which give the right answer for many sizes. You do not see their code. You
# choose the sizes; the pixels and weights will all be different.

# %% [markdown]
# {{exercise unmask_conv}}
#
# Return a list of at most 12 inputs, each a tuple `(H, W, R, S, stride, padding)` of ints: an image of H x W, 1 to 10
# each, a kernel of R x S, 1 to 5 each and not larger than the padded image, a stride from 1 to 4, and a padding from 0
# to 3. There are 2 images of 3 channels, and 2 filters.
#
# You unmask a program if its output differs from the convolution's in shape or value, or if it raises an error. Each
# impostor that you unmask earns two points. You get two more points if you unmask a program and all your inputs follow
# the rules; an input that breaks them does not count. The check shows which programs you have caught, and with which
# input. Run it often.
#
# <details><summary>Hint 1: where to begin</summary>
#
# With the mistakes that you made in exercise 1, or nearly made. Which sizes would have hidden them?
# </details>
# <details><summary>Hint 2: avoid special sizes</summary>
#
# Mistakes hide if height and width are equal, if a kernel looks the same when flipped, or if the stride fits the image
# exactly.
# </details>


# %%
def unmask_conv() -> list[tuple[int, ...]]:
    """Inputs (H, W, R, S, stride, padding) for which the impostors give wrong answers.

    Returns a list of at most 12 tuples.

    An input that unmasks none of them:

        [(5, 5, 1, 1, 1, 0)]
    """
    # BEGIN SOLUTION
    return [
        (5, 5, 2, 2, 1, 0),  # more than one weight
        (4, 7, 1, 1, 1, 0),  # not square
        (6, 6, 1, 1, 2, 0),  # one row is left over
        (5, 5, 1, 1, 1, 1),  # a border
    ]
    # END SOLUTION


# %%
check("convolution.unmask_conv")

# %% [markdown]
# <details><summary>When all four are caught: who they were</summary>
#
# - **B** flips the kernel, as in mathematics.
# - **C** pads with the pixels of the edge, not with zeros.
# - **F** makes outputs as wide as they are high.
# - **G** also takes windows that extend beyond the end.
#
# One input catches all four: an image of 5 x 7, a kernel of 2 x 1, stride 2, padding 1, where no two sizes agree by
# chance. But four inputs, each with its own reason, tell you more: they show *which* mistake a program makes.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to demand of yourself.
#
# Your `conv_winograd` takes any `m`. Try 4, 6 and 8: the tiles take 36, 64 and 100 products, instead of 144, 324 and
# 576 directly. *Proof:* count them with `matmul`. Then measure for each the largest error of float32 against float64.
# Why do libraries hardly ever go beyond 6, and what would happen with 16 bits?

# %% [markdown]
# ## What you take with you
#
# - One operation has many algorithms: a sum, a matrix product, a product of spectra, tiles with fewer products. All are
#   exact, but they round differently.
# - Fewer multiplications cost more memory and additions. So the best algorithm depends on the layer and on the machine.
#   Libraries choose by tables, models or trials.
# - A convolution is linear, so its gradient is a convolution, too: with $T^T$, with `col2im`, or with the same kernels
#   in exchanged roles. There are two gradients, for the filters and for the images, so the backward pass takes twice
#   the multiplications of the forward pass.
# - On a GPU do not store numbers that you can compute the address of. An implicit matrix costs index arithmetic, which
#   is cheap, instead of memory traffic, which is expensive.
#
# ### Further reading
#
# - K. Chellapilla, S. Puri, P. Simard, "High performance convolutional neural networks for document processing", *IWFHR* (2006): im2col.
# - S. Winograd, *Arithmetic Complexity of Computations*, SIAM (1980), and A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", *CVPR* (2016).
# - M. Mathieu, M. Henaff, Y. LeCun, "Fast training of convolutional networks through FFTs", *ICLR* (2014); N. Vasilache et al., "Fast convolutional nets with fbfft: a GPU performance evaluation", *ICLR* (2015).
# - S. Chetlur et al., "cuDNN: efficient primitives for deep learning", arXiv:1410.0759 (2014): the implicit matrix product.
# - Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition", *Proceedings of the IEEE* 86 (1998): LeNet-5.
# - K. Simonyan, A. Zisserman, "Very deep convolutional networks for large-scale image recognition", *ICLR* (2015): VGG.
