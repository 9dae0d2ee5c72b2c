# %% [markdown]
# # Lab 00 · Tensors
# ## Ten puzzles before the labs
#
# The labs are about ideas such as gradients, convolutions and rings. What stops people is often not the idea but a line
# such as `.permute(4, 5, 1, 0, 2, 3).reshape(a * a, C, -1)`. This lab practises ten such lines. Each has one screen
# with a picture, a question to guess, a function of one to four lines and a check, and tells you where you will need it
# again.
#
# **After this lab you can**
# - predict the shape of a result before you run the line;
# - tell a view from a copy, and an in-place change from a new tensor;
# - read code with broadcasting, masks, `einsum` and windows;
# - update a weight without autograd recording it, attach a hook to it, and yield batches one by one.
#
# **100 points, 10 exercises, about 45 minutes.** You need Python functions and `for` loops, but no calculus, no
# networks, no GPU and no download. Run each cell with Shift+Enter. The cell below an exercise checks it, as often as
# you like. If you know PyTorch well, go straight to the exercises: you will reach lab 01 in a quarter of an hour.

# %%
import torch
from torch.nn import functional

from autograder import check
from hpcdl.data import digits
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import (
    aliases,
    bits,
    broadcasting,
    grad_steps,
    handing_out,
    masks,
    row_sums,
    strides,
)

torch.set_num_threads(1)  # small tensors: a second thread costs more than it brings
style.use()

# %% [markdown]
# ## 1 · Shape: a number removes an axis, a slice keeps it
#
# On the left is `y`, made from `x` of shape (3, 4) by the line that you choose in the list. On the right is the memory.
# For now look at the left only, and choose `x[1]`, `x[:, 1]`, `x[:, 1:2]`, `x[:, ::2]`.

# %%
strides.explorable("x[:, ::2]")

# %%
guess(
    "tensors.pick",
    "x has shape (3, 4). What is the shape of x[:, 1:2]?",
    choices=("(3,)", "(3, 1)", "(1, 3)", "(3, 2)"),
    truth=lambda: str(tuple(torch.zeros(3, 4)[:, 1:2].shape)),
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# `x[:, 1]` and `x[:, 1:2]` hold the same three numbers, but their shapes are (3,) and (3, 1). A number in the brackets
# removes its axis. A slice keeps it, even if its length is 1. A slice is `start:stop:step`; if you leave a part out, it
# means "from the first", "to the end" or "every one".
# </details>
#
# {{exercise pick}}
#
# Images are stored as `x` of shape (N, C, H, W): images, channels, rows, columns. Take channel `c` of every image, and
# from that channel every `step`-th row, starting at row `i`.
#
# *You will need it in lab 05: each position of the sliding window sees such a slice.*
#
# <details><summary>Hint</summary>
#
# There are four axes, so four places in the brackets: all images, the number `c`, a slice with a start and a step, and
# all columns. You may leave the last one out.
# </details>


# %%
def pick(x, c, i, step):
    """Channel c of every image, rows i, i + step, i + 2 step, ...

    x: (N, C, H, W). Returns a view of x, (N, rows, W); no number is copied.

    >>> pick(torch.arange(12).view(1, 2, 3, 2), 1, 0, 2).tolist()
    [[[6, 7], [10, 11]]]
    """
    # BEGIN SOLUTION
    return x[:, c, i::step]
    # END SOLUTION


# %%
check("tensors.pick")

# %% [markdown]
# ## 2 · Memory: a view, or a copy?
#
# A tensor is a strip of memory and a way to walk through it: an *offset*, and for each axis a *stride*,
# the number of cells from one element to the next. The shades follow the order of `y`. Step through
# `x.T`, `x.view(4, 3)` and `x.T.reshape(3, 4)`, and read the sentence.

# %%
strides.explorable("x.T")


# %%
def copies(x):
    """The line whose result is in a different memory."""
    made = {"x.T": x.T, "x.view(4, 3)": x.view(4, 3), "x.T.reshape(3, 4)": x.T.reshape(3, 4)}
    return next(line for line, y in made.items() if y.data_ptr() != x.data_ptr())


guess(
    "tensors.copies",
    "x has shape (3, 4). Which of these copies numbers?",
    choices=("x.T", "x.view(4, 3)", "x.T.reshape(3, 4)"),
    truth=lambda: copies(torch.arange(12).view(3, 4)),
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# Only the last. `x.T` exchanges the two strides, and `view` cuts the same strip into rows of another length. But no
# offset and strides can walk through `x.T` in rows of 4. `view` would raise an error, while `reshape` copies. So `view`
# never copies, `reshape` copies only if it must, and both cut *in the current order of the axes*.
# </details>
#
# {{exercise by_channel}}
#
# Turn images (N, C, H, W) into a matrix with one row for each channel. Row c holds channel c of image 0, row after row,
# then channel c of image 1, and so on.
#
# *You will need it in lab 05: Winograd's tiles become a stack of matrices by
# `permute(4, 5, 1, 0, 2, 3)` and `reshape`.*
#
# <details><summary>Hint</summary>
#
# First put the axes into the order in which the numbers must follow each other: C, N, H, W. `x.transpose(0, 1)`
# exchanges two axes, `x.permute(1, 0, 2, 3)` names them all. Then `.reshape(rows, -1)`: -1 means "as many as there
# are".
# </details>


# %%
def by_channel(x):
    """A matrix with a row for each channel.

    x: (N, C, H, W), contiguous or not. Returns (C, N H W); with one image it is a view.

    >>> by_channel(torch.arange(8).view(2, 2, 1, 2)).tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    # BEGIN SOLUTION
    return x.transpose(0, 1).reshape(x.shape[1], -1)
    # END SOLUTION


# %%
check("tensors.by_channel")

# %% [markdown]
# ## 3 · Broadcasting: an axis of length 1 stretches
#
# PyTorch aligns the two shapes *at their right ends*. If one of them has a 1 or nothing at an axis, it stretches to the
# other's length. Otherwise the two lengths must be equal.

# %%
broadcasting.explorable()

# %%
x33, b3 = torch.zeros(3, 3), torch.tensor([1.0, 2.0, 3.0])
guess(
    "tensors.stretch",
    "x has shape (3, 3), b has shape (3,). In x + b, what gets its own number of b?",
    choices=("each row", "each column"),
    truth=lambda: "each column" if torch.equal((x33 + b3)[0], b3) else "each row",
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# Each column, because the vector lies along the last axis. If you meant the rows, no error warns you. `b[:, None]` has
# shape (3, 1): it is a column, and each row gets its own number.
# </details>
#
# {{exercise stretch}}
#
# A bias `b` has one number for each channel. Return a tensor of `x`'s shape that has `b[c]` everywhere in channel c,
# without using new memory. This is the tensor that `x + b[:, None, None]` adds.
#
# *You will need it in labs 01 and 04: `slopes[:, None] * X`, and a bias for each neuron.*
#
# <details><summary>Hint</summary>
#
# `None` in brackets adds an axis of length 1: `b[:, None, None]` is (C, 1, 1), which meets
# (N, C, H, W) at the channels. `.expand(shape)` lets axes of length 1 look long, with stride
# 0. `.repeat` writes copies.
# </details>


# %%
def stretch(b, x):
    """b along the channels, in the shape of x, without a copy.

    b: (C,). x: (N, C, H, W); only its shape matters. Returns a view of b.

    >>> stretch(torch.tensor([1, 2]), torch.zeros(1, 2, 1, 3)).tolist()
    [[[[1, 1, 1]], [[2, 2, 2]]]]
    """
    # BEGIN SOLUTION
    return b[:, None, None].expand(x.shape)
    # END SOLUTION


# %%
check("tensors.stretch")

# %% [markdown]
# ## 4 · Masks: a question to every element
#
# `x >= 0` is not one answer but a tensor of answers. `if` cannot use it, but `torch.where` can.

# %%
masks.explorable()

# %%
infinite = torch.tensor(float("inf"))
guess(
    "tensors.mask",
    "Some numbers of a are infinite. What is (a < 5) * a there?",
    choices=("0", "inf", "nan"),
    truth=lambda: str(((infinite < 5) * infinite).item()),
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# `nan`. False counts as 0, and 0 times infinity is not a number. If you multiply by a mask, `inf` and `nan` get
# through. `torch.where(a < 5, a, 0)` selects, without arithmetic.
# </details>
#
# {{exercise safe_ratio}}
#
# Divide element by element, and return 0 where `b` is 0.
#
# *You will need it in labs 01, 03 and 06: the logistic function by the sign of x, labels ±1,
# rounding that does not change nan.*
#
# <details><summary>Hint</summary>
#
# `torch.where(condition, this, that)`. `a / b` may be `inf` where it is not selected; that does no harm. Use `/`, since
# `//` rounds down to whole numbers.
# </details>


# %%
def safe_ratio(a, b):
    """a / b, and 0 where b is 0, elementwise.

    a, b: of one shape and dtype, not changed. Returns a tensor of that shape; float32 if a
    and b are whole numbers. Only zeros of b matter: elsewhere an inf or nan of a / b stays.

    >>> safe_ratio(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([4.0, 0.0, 0.0]))
    tensor([0.2500, 0.0000, 0.0000])
    """
    # BEGIN SOLUTION
    return torch.where(b == 0, 0, a / b)
    # END SOLUTION


# %%
check("tensors.safe_ratio")

# %% [markdown]
# ## 5 · Sums: remove an axis, or keep it
#
# `x.sum(1)` adds along each row, and removes axis 1. The result is a vector, and puzzle 3 showed where broadcasting
# puts a vector. Try `keepdim`, and then the shape (3, 3) without it.

# %%
row_sums.explorable()


# %%
def wrong_without_an_error():
    """The combination that runs, and whose rows do not add up to 1."""
    for shape in ((3, 3), (3, 4)):
        for keepdim in (False, True):
            x = torch.arange(1.0, 1 + shape[0] * shape[1]).view(shape)
            try:
                y = x / x.sum(1, keepdim=keepdim)
            except RuntimeError:
                continue
            if not torch.allclose(y.sum(1), torch.ones(3)):
                return f"{shape}{', keepdim' if keepdim else ''}"


guess(
    "tensors.square",
    "x / x.sum(1) in four combinations: which one gives a wrong result without an error?",
    choices=("(3, 3)", "(3, 3), keepdim", "(3, 4)", "(3, 4), keepdim"),
    truth=lambda: wrong_without_an_error(),
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# (3, 3) without `keepdim`: each row is divided by the sums of all the rows, one for each column, not by its own sum.
# With (3, 4) the same line stops with an error, which is easier to notice.
# </details>
#
# {{exercise sums}}
#
# Write two functions of one line each. `shares` divides each row of `x` by its sum. `mix` computes, at every pixel,
# each output as a weighted sum over the channels: $y_{nkpq} = \sum_c w_{kc}\, x_{ncpq}$. `torch.einsum` takes the
# formula itself: one letter for each axis. It sums over each letter that is missing after the arrow.
#
# *You will need it in lab 04, where softmax turns exponentials into shares, and in lab 05,
# where `"kc,ncpq->nkpq"` is the heart of a convolution.*
#
# <details><summary>Hint 1: shares</summary>
#
# `x.sum(1, keepdim=True)` has shape (n, 1). It is a column, so each row of x meets its own sum.
# </details>
# <details><summary>Hint 2: mix</summary>
#
# A matrix product is `torch.einsum("ik,kj->ij", a, b)`. Write the letters of w, of x and
# of y in the formula's order.
# </details>


# %%
def shares(x):
    """Each row of x divided by its sum.

    x: (n, d), not changed; no row adds up to 0. Returns (n, d), floats.

    >>> shares(torch.tensor([[1.0, 3.0], [2.0, 2.0]])).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    # BEGIN SOLUTION
    return x / x.sum(1, keepdim=True)
    # END SOLUTION


def mix(w, x):
    """Mix the channels of every pixel: y[n, k, p, q] = sum over c of w[k, c] x[n, c, p, q].

    w: (K, C). x: (N, C, P, Q), of the same dtype. Returns (N, K, P, Q).

    >>> mix(torch.tensor([[1.0, 10.0]]), torch.tensor([[[[1.0, 2.0]], [[3.0, 4.0]]]]))
    tensor([[[[31., 42.]]]])
    """
    # BEGIN SOLUTION
    return torch.einsum("kc,ncpq->nkpq", w, x)
    # END SOLUTION


# %%
check("tensors.sums")

# %% [markdown]
# ## 6 · Windows: one number, seen several times
#
# The last view in the list is `unfold(dim, size, step)`. It cuts out windows that overlap. Move the framed element from
# row to row: two rows of `y` share cells of the memory.

# %%
strides.explorable("x.flatten().unfold(0, 4, 2)")

# %%
guess(
    "tensors.windows",
    "12 numbers, windows of 4, a step of 2. How many windows?",
    truth=lambda: len(torch.arange(12).unfold(0, 4, 2)),
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# (12 − 4) // 2 + 1 = 5 windows: 20 numbers to see, 12 in memory. The next window begins 2 cells later, and the next
# number in a window is 1 cell later: strides (2, 1).
# </details>
#
# {{exercise windows}}
#
# Return all windows along the last axis of `x`, without a copy. `x` may have any number of axes.
#
# *You will need it in lab 05: the tiles of Winograd's algorithm are `x.unfold(2, a, m).unfold(3, a, m)`. (Lab 05
# also asks for `im2col`, without `unfold`: writing `unfold` yourself is the exercise.)*
#
# <details><summary>Hint</summary>
#
# The last axis has the number -1. `x.as_strided(shape, strides)` works, too, but it does not check what you give it.
# Take the strides of *this* x from `x.stride()`: they may not be what you expect.
# </details>


# %%
def windows(x, size, step):
    """The windows x[..., 0 : size], x[..., step : step + size], ... that fit into x.

    x: (..., n), n >= size. Returns a view of x, (..., windows, size).

    >>> windows(torch.arange(6), 3, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    # BEGIN SOLUTION
    return x.unfold(-1, size, step)
    # END SOLUTION


# %%
check("tensors.windows")

# %% [markdown]
# ## 7 · In place: who else sees it?
#
# A name is a label on a piece of memory. `=` moves the label. `+=`, `x[...] =` and methods that end in `_` write into
# the memory, and every other name of that memory sees the change. Click through the program, and predict before each
# line which names will change.

# %%
aliases.explorable()


# %%
def changes_b():
    """Run both lines, and look at b."""
    a = b = torch.zeros(1)
    a = a + 1
    first = b.item() != 0
    a = b
    a += 1
    second = b.item() != 0
    return {(True, False): "a = a + 1", (False, True): "a += 1", (True, True): "both"}.get((first, second), "neither")


guess(
    "tensors.in_place",
    "After b = a: which line changes b, too?",
    choices=("a = a + 1", "a += 1", "both", "neither"),
    truth=lambda: changes_b(),
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# The first does not: it computes a new tensor and gives it the name `a`. The second does: it writes into the memory
# that both names share. This holds for a function's arguments, too: the caller does not notice `x = x + 1`, but `x +=
# 1` changes the caller's tensor.
# </details>
#
# {{exercise average_in_place}}
#
# Overwrite *every tensor of the list* with the mean of all of them. Every other name or view of their memories must
# show the mean, too. The function returns nothing.
#
# *You will need it in labs 07 and 08: an all-reduce does this to the gradients of many machines, and a bucket is one
# memory with many names.*
#
# <details><summary>Hint 1: the mean</summary>
#
# Add the tensors up and divide by their number: that makes a new tensor. Compute it once, before you overwrite any of
# them.
# </details>
# <details><summary>Hint 2: writing</summary>
#
# `x = ...` in a loop only moves the name `x`. A tensor's method `copy_` writes into its memory, as every method whose
# name ends in `_` does.
# </details>


# %%
def average_in_place(xs):
    """Overwrite each tensor with the mean of all.

    xs: list of tensors of one shape and float dtype; any of them may be a view of a larger
    memory. Returns None.

    >>> a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])
    >>> average_in_place([a, b]); a
    tensor([2., 4.])
    """
    # BEGIN SOLUTION
    mean = sum(xs) / len(xs)
    for x in xs:
        x.copy_(mean)
    # END SOLUTION


# %%
check("tensors.average_in_place")

# %% [markdown]
# ## 8 · Bits: the same number, or the same memory?
#
# A float32 is 32 bits: a sign, 8 for the power of two, 23 for the digits. `x.to(dtype)` stores the same *number* in
# another format. `x.view(dtype)` does not change the *bits*, but reads them as a number of that format.

# %%
bits.explorable()

# %%
guess(
    "tensors.float32",
    "16,777,217 is 2²⁴ + 1. Which number does float32 store?",
    choices=("16,777,216", "16,777,217", "16,777,218"),
    truth=lambda: f"{torch.tensor(16_777_217.0).item():,.0f}",
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# 16,777,216 (try it in the list). With 24 bits for the digits, float32 skips whole numbers from 2²⁴ on, and 0.7 is
# stored as 0.699999988. float64 has 53 bits. It is safer for sums over millions of samples, but takes twice the bytes.
# </details>
#
# {{exercise cut}}
#
# Set the lower 16 of the 32 bits of every number to 0. The rest fits into 16 bits: this format is called bfloat16.
#
# *You will need it in lab 06: to round at random, you add one integer before this cut.*
#
# <details><summary>Hint 1: the way</summary>
#
# View the bits as whole numbers, `x.view(torch.int32)`. Change these numbers, then view them as floats again,
# `.view(torch.float32)`.
# </details>
# <details><summary>Hint 2: the low half</summary>
#
# `bits >> 16` moves all bits 16 places down and drops the low ones. `<< 16` moves them up again and fills in zeros.
# (`bits & -65536` does both at once.)
# </details>


# %%
def cut(x):
    """x with the low 16 of its 32 bits set to 0.

    x: float32, any shape, not changed. Returns float32 of that shape.

    >>> cut(torch.tensor([0.7, -100.3]))
    tensor([   0.6992, -100.0000])
    """
    # BEGIN SOLUTION
    return (x.view(torch.int32) >> 16 << 16).view(torch.float32)
    # END SOLUTION


# %%
check("tensors.cut")

# %% [markdown]
# ## 9 · Gradients: they add up, and they call hooks
#
# Autograd watches a tensor `w` with `requires_grad=True`: `loss.backward()` computes the slope of the loss with respect
# to `w`, and **adds** it to `w.grad`. The picture shows steps against `w.grad` for the loss w². Tick the box.

# %%
grad_steps.explorable()

# %%
guess(
    "tensors.rest",
    "If the box is not ticked: does w come to rest within 8 steps?",
    choices=("yes", "no"),
    truth=lambda: "no" if abs(grad_steps.path(8, 0.2, False).w[-1]) > 0.1 else "yes",
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# No, it swings. The third step still moves the same way although the slope has changed its sign, because `w.grad` also
# holds the old slopes. No error warns you. You must clear the gradient after each step.
# </details>
#
# {{exercise grads}}
#
# Write two functions. `descend` moves `w` one step against its gradient, in place, without autograd recording the step.
# Then it clears the gradient. `watch` attaches a *hook* to each parameter: a function that autograd calls by itself.
# The hook must call `ready(i)` as soon as `params[i].grad` is there.
#
# *You will need it in lab 07: the training step, and messages that are sent while the backward pass still runs.*
#
# <details><summary>Hint 1: descend</summary>
#
# An in-place step is allowed under `with torch.no_grad():`. `w.grad = None` clears the gradient.
# </details>
# <details><summary>Hint 2: watch</summary>
#
# `param.register_post_accumulate_grad_hook(f)`: autograd will call `f(param)`. So register a function that takes one
# argument and ignores it: `lambda _: ...`.
# </details>
# <details><summary>Hint 3: why does my hook always send the last number?</summary>
#
# A function looks up its variables when it is *called*. By then the loop is over, and `i` has its last value. Python
# evaluates a default value when the function is *made*: `lambda _, i=i: ...`.
# </details>


# %%
def descend(w, lr):
    """One step w <- w - lr w.grad, in place; then w.grad is None.

    w: tensor with requires_grad and a gradient. Autograd must still watch this same tensor.

    >>> w = torch.tensor([3.0], requires_grad=True)
    >>> (w**2).sum().backward(); descend(w, 0.25); w
    tensor([1.5000], requires_grad=True)
    """
    # BEGIN SOLUTION
    with torch.no_grad():
        w -= lr * w.grad
    w.grad = None
    # END SOLUTION


def watch(params, ready):
    """Make every backward pass call ready(i) as soon as params[i].grad is there.

    params: list of tensors with requires_grad. ready: function of an int. Returns None.

    >>> w = torch.tensor([1.0], requires_grad=True)
    >>> watch([w], print); (w**2).sum().backward()
    0
    """
    # BEGIN SOLUTION
    for i, param in enumerate(params):
        param.register_post_accumulate_grad_hook(lambda _, i=i: ready(i))
    # END SOLUTION


# %%
check("tensors.grads")

# %% [markdown]
# ## 10 · Generators: one value at a time
#
# A function with `yield` in it does not run when it is called. When the caller asks for the next value, the function
# runs up to its `yield` and waits there. `yield from` yields all values of a sequence, one after the other. Ask for
# items with each of the three programs.

# %%
handing_out.explorable()


# %%
def orders_drawn():
    """Ask for the first batch, and count."""
    drawn = []

    def batches():
        for _ in range(3):
            drawn.append(torch.randperm(6))
            yield from drawn[-1].split(2)

    next(batches())
    return len(drawn)


guess(
    "tensors.orders",
    "A generator of three epochs uses yield from. You ask for the first batch. How many orders have been drawn?",
    truth=lambda: orders_drawn(),
)

# %% [markdown]
# <details><summary>And why?</summary>
#
# One, by both generators. The list draws all three. And the program with a plain `yield` yields a whole epoch as one
# item.
# </details>
#
# {{exercise epochs}}
#
# `order` is a function, passed like any other argument. `order(n)` returns the indices 0 ... n − 1 in some order, a
# different one at each call. Yield the batches of `times` epochs, each epoch in a new order.
#
# *You will need it in lab 02, which trains by mini-batches. All labs pass functions as arguments: `derivative(f, x)`,
# `train(step, ...)`.*
#
# <details><summary>Hint</summary>
#
# `.split(size)` cuts a tensor into a tuple of pieces of that size; the last may be shorter. One line in a loop yields
# the pieces of an epoch, one after the other.
# </details>


# %%
def epochs(n, size, times, order):
    """The batches of `times` epochs, one after the other.

    order(n): a 1-d int64 tensor of n indices, called once for each epoch, when its first
    batch is asked for. Yields 1-d tensors of `size` indices; the last one of an epoch may
    be shorter.

    >>> list(epochs(3, 2, 2, torch.arange))
    [tensor([0, 1]), tensor([2]), tensor([0, 1]), tensor([2])]
    """
    # BEGIN SOLUTION
    for _ in range(times):
        yield from order(n).split(size)
    # END SOLUTION


# %%
check("tensors.epochs")

# %% [markdown]
# ## For real: your lines read handwriting
#
# The data are 1,797 digits of 8 × 8 pixels, and the model has 640 weights. `x @ w` gives ten numbers for an image; the
# largest is the answer. `epochs` yields the batches, `descend` makes the steps, `shares` turns numbers into odds, and
# `cut` removes half of each weight's bits. (The loss is torch's; you write it yourself in lab 04.)
#
# How many of the held-out digits will it read correctly, and how many with half of the bits?

# %%
guess(
    "tensors.digits",
    "Of 100 held-out digits, how many will it read correctly?",
    unit="of 100",
)

# %%
guess(
    "tensors.half",
    "And with only the upper 16 bits of each weight?",
    unit="of 100",
)

# %%
with when_solved():
    guessed("tensors.digits")
    guessed("tensors.half")
    data, generator = digits(), torch.Generator().manual_seed(0)
    x, x_new = data.x.flatten(1), data.x_held_out.flatten(1)
    w = torch.zeros(64, 10, requires_grad=True)
    for batch in epochs(len(x), 32, 20, lambda n: torch.randperm(n, generator=generator)):
        functional.cross_entropy(x[batch] @ w, data.y[batch]).backward()
        descend(w, 0.5)

    for name, weights in (("all 32 bits", w.detach()), ("the upper 16", cut(w.detach()))):
        right = ((x_new @ weights).argmax(1) == data.y_held_out).float().mean().item()
        print(f"{name:<13} {100 * right:.1f} % of {len(x_new)} held-out digits right")
        reveal("tensors.digits" if name == "all 32 bits" else "tensors.half", 100 * right)
    odds = shares(torch.exp(x_new[:1] @ w.detach()))[0]
    read, sure = odds.argmax().item(), odds.max().item()
    print(f"the first of them is a {data.y_held_out[0]}; read as a {read}, odds {sure:.3f}")

# %% [markdown]
# <details><summary>What you should see</summary>
#
# About 95 of 100 in both rows: the lower half of the bits hardly matters *after* training. Can you also train a network
# in 16 bits? Lab 06 tries it.
# </details>

# %% [markdown]
# ## For those who want more
#
# No points, no check: a puzzle, and the proof to demand of yourself.
#
# `x.as_strided(size, stride)` is a view. Its `stride` says, for each axis, how many cells lie between two neighbours.
# Use it to make all windows of 3 × 3 pixels of an image of 8 × 8: shape (6, 6, 3, 3), without copying a pixel. *Proof:*
# the view's `data_ptr()` is the image's, and it equals `x.unfold(0, 3, 1).unfold(1, 3, 1)`. Then add 1 to the view in
# place: PyTorch raises no error. Which pixels changed by more than 1, and why should you never do this?

# %% [markdown]
# ## Further reading
#
# - PyTorch's documentation: *Tensor Views*, *Broadcasting semantics*, *Autograd mechanics*.
# - S. van der Walt, S. C. Colbert, G. Varoquaux (2011), *The NumPy Array: A Structure for Efficient Numerical
#   Computation*, Computing in Science & Engineering 13(2): strides and broadcasting, explained by the people who built
#   them.
# - D. Goldberg (1991), *What Every Computer Scientist Should Know About Floating-Point
#   Arithmetic*, ACM Computing Surveys 23(1).
# - Python's documentation, *Functional Programming HOWTO*: generators and functions as values.
#
# **Next:** lab 01 measures a derivative.
