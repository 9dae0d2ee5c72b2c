# %% [markdown]
# # Lab {{number scaling}} · To 1,024 GPUs and 2,048
# ## Fusion, large batches, mixed precision, input, and a run predicted
#
# In a case study of the lecture, ResNet-50 trains on 1,024 GPUs at 99.2 % efficiency, but 2,048 GPUs are far from twice as fast. Where did the other GPUs go?
#
# Between one GPU and two thousand there are five leaks: input that does not keep up, messages that are not hidden, ranks that wait for the slowest, numbers
# that do not fit into 16 bits, and the batch, which grows with the machines until twice the samples in a step teach hardly more. In this lab you count, predict
# and repair each leak. Then you combine them into one prediction, and compare it with published runs.
#
# **You will be able to**
# - put gradients into the buckets that finish soonest;
# - train with batches of thousands: linear scaling, warm-up, LARS, LAMB;
# - train in 16 bits, with a loss scale that is the same on all ranks;
# - say whether the input keeps up, and continue in the middle of an epoch with a different number of ranks;
# - predict a run before you pay for it.
#
# **100 points, 5 exercises, about 118 minutes: 25 reading + 83 exercises + 10 runs; an extra exercise takes 20 more, and has 15 of the points.** You need lab 07; labs 06, 08 and {{number machines}} help. MPI
# came with the installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$ | ranks |
# | $\alpha, \beta$ | seconds for a message, and for each of its bytes (lab 08) |
# | $\eta$ | a learning rate; $\beta_1, \beta_2$ are Adam's, as everywhere |

# %%
import itertools
import math
import time

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from autograder import check
from hpcdl.cost import scaling
from hpcdl.cost.machines import GIGABIT, RDMA
from hpcdl.cost.published.data_parallel import IMAGES_PER_SECOND
from hpcdl.cost.published.row import SPREAD, USABLE
from hpcdl.data import digits
from hpcdl.nn.networks import inception_v3, resnet50, resnet101, vgg16
from hpcdl.numerics.rounding import FP16, round_nearest
from hpcdl.widgets import guess, guessed, progress, reveal, style, when_solved
from hpcdl.widgets.pictures import loss_scale, speed_up

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# The picture shows training with 64 images on each of $p$ GPUs, 8 to a server. On the left you see how each leak reduces the ideal speed-up of $p$. On the
# right you see the efficiency over $p$; the dots are published values.
#
# Which leak is the largest with 1,024 GPUs? Make your guess, then:
# 1. Move the number of **GPUs**. Which leak grows, which one stays, and which one appears suddenly?
# 2. Take VGG-16, and then each kind of **buckets**. When do buckets matter, and when does only a faster **link** or 16 bits help?
# 3. The lecture's 1,024 GPUs reach 99.2 %. What must you assume to get there?

# %%
guess(
    "scaling.leak",
    "ResNet-50 on 1,024 GPUs, links of 25 Gb/s, a critical batch of 32,000: which leak is the largest?",
    choices=("input", "messages", "stragglers", "the batch"),
)

# %%
guess(
    "scaling.left",
    "How many times sooner do 1,024 GPUs reach the same loss than one GPU?",
    unit="times",
)

# %%
with when_solved():
    guessed("scaling.leak")
    guessed("scaling.left")
    picture = speed_up.explorable()
    left = speed_up.remaining(picture.state, 1024)
    leaks = {leak: before - after for leak, before, after in zip(speed_up.LEAKS, left, left[1:])}
    reveal("scaling.leak", max(leaks, key=leaks.get))
    reveal("scaling.left", left[-1])
    display(picture)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. Waiting for the slowest GPU costs 7 % with 8 GPUs and 14 % with 1,024: it grows, but slowly. With 2,048 GPUs the input takes longer than this wait, and
#    hides it. The input costs nothing while it keeps up; beyond that, every further GPU is wasted. The largest leak does not appear in any profile: with a
#    batch beyond the critical one, a step learns hardly more, no matter how many images it has.
# 2. Small buckets pay $\alpha$ again and again; a single bucket hides nothing. VGG-16 has 138 million weights: its messages take longer than its backward pass,
#    so no buckets help.
# 3. Step times without any spread, a link of 100 Gb/s, and 16 bits give 99 %. But no one has seen machines without any spread. You come back to this at the
#    end.
# </details>

# %% [markdown]
# ## Small messages wait for large ones
#
# The backward pass computes the last layer's gradient first, and each gradient can be summed over the ranks while the pass continues. This is **wait-free
# backpropagation** (WFBP; the lecture's second picture, and your lab 07). An all-reduce of $n$ bytes takes $\alpha + \beta n$ seconds; here $\alpha$ and
# $\beta$ describe a whole all-reduce, as fitted in lab 08. There is one link, and messages go in order:
#
#     backward    4444 333 22 1111111
#     link             4444 333 22--- 1111
#
# A network has many small layers, and each message pays $\alpha$. **Fusion** puts neighbouring gradients into a bucket: it pays $\alpha$ once, but is ready
# only when its *last* gradient is ready. PyTorch closes a bucket at 25 MB; Horovod takes what is ready when the link becomes free. Neither knows $\alpha$ and
# $\beta$. You know them, so you can find the best buckets.

# %% [markdown]
# {{exercise fusion}}
#
# Compute when the messages of given buckets end, and find the best buckets. Two hundred layers can be cut into buckets in $2^{199}$ ways. But the best end of
# the first $k$ gradients follows from the best ends of fewer gradients, because the last bucket must begin *somewhere*.
#
# <details><summary>Hint 1: wfbp</summary>
#
# A message begins at `max(ready, free)`, where `free` is the end of the previous message.
# </details>
# <details><summary>Hint 2: the recursion</summary>
#
# `ends[k]` is the earliest time at which the first k gradients can be summed; `ends[0] = 0`. If the last bucket holds gradients i to k-1, it is ready at
# `gradients[k-1][0]`, and done at `max(ends[i], ready) + alpha + beta * bytes`. Take the best i.
# </details>
# <details><summary>Hint 3: the buckets themselves</summary>
#
# Keep with each `ends[k]` the buckets that lead to it: `best[k] = (end, buckets)`, where `buckets = best[i][1] + [(ready, bytes)]`.
# </details>


# %%
def wfbp(
    buckets: list[tuple[float, int]],
    alpha: float,
    beta: float,
) -> list[tuple[float, float]]:
    """Return when each bucket's message begins and ends, on one link, in order.

    buckets: (second at which the bucket is ready, bytes).

    >>> wfbp([(1.0, 10), (2.0, 10)], alpha=1.0, beta=0.1)
    [(1.0, 3.0), (3.0, 5.0)]
    """
    # BEGIN SOLUTION
    times, free = [], 0.0
    for ready, nbytes in buckets:
        begin = max(ready, free)
        free = begin + alpha + beta * nbytes
        times.append((begin, free))
    return times
    # END SOLUTION


def fuse(
    gradients: list[tuple[float, int]],
    alpha: float,
    beta: float,
) -> list[tuple[float, int]]:
    """Return the buckets of neighbouring gradients whose last message ends soonest.

    gradients and buckets: (second at which it is ready, bytes), in the order of the
    backward pass.

    >>> fuse([(1.0, 10), (2.0, 10), (9.0, 10)], alpha=2.0, beta=0.1)
    [(2.0, 20), (9.0, 10)]
    """
    # BEGIN SOLUTION
    best = [(0.0, [])]
    for k, (ready, _) in enumerate(gradients, start=1):
        nbytes, ways = 0, []
        for i in reversed(range(k)):
            nbytes += gradients[i][1]
            end = max(best[i][0], ready) + alpha + beta * nbytes
            ways.append((end, best[i][1] + [(ready, nbytes)]))
        best.append(min(ways, key=lambda way: way[0]))
    return best[-1][1]
    # END SOLUTION


# %%
check("scaling.fusion")

# %%
with when_solved():
    layers = resnet50()
    macs, done, gradients = sum(layer.macs for layer in layers), 0, []
    for layer in reversed(layers):
        done += layer.macs
        gradients.append((0.12 * done / macs, 4 * layer.weights))
    everything = [(gradients[-1][0], sum(nbytes for _, nbytes in gradients))]
    print("ResNet-50, backward pass of 120 ms: ms of messages after its end, by the start-up time alpha (4 GB/s)")
    print(f"{'alpha':>10}{'layer by layer':>18}{'one bucket':>14}{'best':>10}{'buckets':>10}")
    for alpha in (1e-5, 1e-4, 1e-3, 1e-2):
        best = fuse(gradients, alpha, 1 / 4e9)
        left = [1e3 * (wfbp(buckets, alpha, 1 / 4e9)[-1][1] - 0.12) for buckets in (gradients, everything, best)]
        print(f"{1e3 * alpha:7g} ms{left[0]:18.1f}{left[1]:14.1f}{left[2]:10.1f}{len(best):10}")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# If a message costs little, any small buckets will do; if it costs much, use few large ones. Nothing hides the first layer's gradient, which comes last, so the
# best last bucket is small. A rule that knows only sizes cannot do both.
# </details>

# %% [markdown]
# ## The batch grows with the machine
#
# $p$ ranks with 64 samples each make a batch of $64\,p$, and an epoch has a $p$-th of the steps. To make the same progress in each epoch, the **learning rate
# grows with the batch**: $k$ times the batch, $k$ times $\eta$ (Goyal et al. 2017). In the first steps, when the weights change fast, this rate is too large,
# so in the first epochs it grows step by step from $\eta$ to $k\eta$. With this **warm-up** and linear scaling, ResNet-50 trained with batches of 8,192.
#
# With larger batches, some layers diverge while others hardly move: the ratio of gradient norm to weight norm differs between layers by factors of hundreds.
# **LARS** (You, Gitman and Ginsburg 2017) gives each weight tensor a step proportional to its own norm:
#
# $$v \leftarrow m\,v + \eta\,\lambda\,(g + d\,w), \qquad w \leftarrow w - v, \qquad \lambda = \frac{c\,\|w\|}{\|g\| + d\,\|w\|}$$
#
# with momentum $m$, weight decay $d$, and a trust coefficient $c$. **LAMB** (You et al. 2020) does the same with Adam's step:
#
# $$u = \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} + d\,w, \qquad w \leftarrow w - \eta\,\frac{\|w\|}{\|u\|}\,u$$
#
# where $m$ and $v$ are Adam's running means of $g$ and $g^2$. Tensors of one dimension, that is, biases and the weights of normalizations, get neither ratio
# nor decay.

# %% [markdown]
# {{exercise large_batch}}
#
# Write a step of LARS, a step of LAMB, and the learning rate with warm-up and drops. All three functions return new values and do not change their arguments.
# If either norm is 0, use a ratio of 1; otherwise weights initialised to 0 would never move.
#
# <details><summary>Hint 1: one tensor of LARS</summary>
#
# Compute both norms before the decay changes the gradient: the ratio's denominator is the norm of g plus `decay` times
# the norm of w. Only tensors of more than one dimension get a ratio and a decay.
# </details>
# <details><summary>Hint 2: LAMB</summary>
#
# First the new m and v, then the update with its corrections; add `decay * w` before you take the norm, if w has more than one dimension.
# </details>
# <details><summary>Hint 3: the learning rate</summary>
#
# The warm-up goes from `lr` to `k * lr` along a straight line. `step >= drop` is True or False; a sum of them counts
# the drops so far, and each divides the rate by 10.
# </details>


# %%
def lars_step(
    weights: list[Tensor],
    gradients: list[Tensor],
    velocities: list[Tensor],
    lr: float,
    momentum: float = 0.9,
    decay: float = 1e-4,
    trust: float = 1e-3,
) -> tuple[list[Tensor], list[Tensor]]:
    """Do a step of LARS; return the new weights and velocities, tensor by tensor."""
    # BEGIN SOLUTION
    moved, kept = [], []
    for w, g, v in zip(weights, gradients, velocities, strict=True):
        size, ratio = w.norm(), 1.0
        if w.dim() > 1:
            below = g.norm() + decay * size
            ratio = trust * size / below if size > 0 and below > 0 else 1.0
            g = g + decay * w
        kept.append(momentum * v + lr * ratio * g)
        moved.append(w - kept[-1])
    return moved, kept
    # END SOLUTION


def lamb_step(
    weights: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor],
    variances: list[Tensor],
    t: int,
    lr: float,
    decay: float = 0.01,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Do step t = 1, 2, ... of LAMB; return the new weights, momenta and variances.

    beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-6.
    """
    # BEGIN SOLUTION
    momenta = [0.9 * m + 0.1 * g for m, g in zip(momenta, gradients, strict=True)]
    variances = [0.999 * v + 0.001 * g * g for v, g in zip(variances, gradients, strict=True)]
    moved = []
    for w, m, v in zip(weights, momenta, variances, strict=True):
        update, ratio = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-6), 1.0
        if w.dim() > 1:
            update = update + decay * w
            size, length = w.norm(), update.norm()
            ratio = size / length if size > 0 and length > 0 else 1.0
        moved.append(w - lr * ratio * update)
    return moved, momenta, variances
    # END SOLUTION


def lr_at(step: int, lr: float, k: float, warmup: int, drops: list[int] = ()) -> float:
    """Return the learning rate of step 0, 1, ... with k times the batch that lr is made
    for.

    It grows in equal steps from lr at step 0 to k lr at step `warmup`; from each of `drops`
    on, even during the warm-up, it is divided by 10.

    >>> [lr_at(step, 1.0, k=4, warmup=3) for step in range(5)]
    [1.0, 2.0, 3.0, 4.0, 4.0]
    """
    # BEGIN SOLUTION
    grown = lr * (1 + (k - 1) * min(1.0, step / warmup)) if warmup else k * lr
    return grown * 0.1 ** sum(step >= drop for drop in drops)
    # END SOLUTION


# %%
check("scaling.large_batch")


# %%
guess(
    "scaling.lars",
    "With a batch of 16, SGD needs some 150 steps until 95 % of the digits are right. How many does LARS need with 512?",
    unit="steps",
)


# %%
def steps_to(
    target: float,
    batch: int,
    rule: str,
    lr: float,
    seed: int,
    most: int = 400,
) -> int | None:
    """Return the steps until the target share of held-out digits is right, or None; lr is for a batch of 16."""
    g = torch.Generator().manual_seed(seed)
    x, x_held_out = data.x.flatten(1), data.x_held_out.flatten(1)
    weights = []
    for inputs, outputs in itertools.pairwise((64, 64, 64, 10)):
        weights += [torch.randn(inputs, outputs, generator=g) * (2 / inputs) ** 0.5, torch.zeros(outputs)]
    velocities = [torch.zeros_like(w) for w in weights]

    def network(x: Tensor, weights: list[Tensor]) -> Tensor:
        for w, b in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            x = torch.relu(x @ w + b)
        return x @ weights[-2] + weights[-1]

    for step in range(most):
        rows = torch.randint(len(data.y), (batch,), generator=g)
        weights = [w.detach().requires_grad_() for w in weights]
        loss = cross_entropy(network(x[rows], weights), data.y[rows])
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            rate = lr_at(step, lr, batch / 16, warmup=20)
            if rule == "LARS":
                weights, velocities = lars_step(weights, gradients, velocities, rate, trust=0.02)
            else:
                velocities = [0.9 * v + rate * grad for v, grad in zip(velocities, gradients, strict=True)]
                weights = [w - v for w, v in zip(weights, velocities, strict=True)]
            if step % 2 and (network(x_held_out, weights).argmax(1) == data.y_held_out).float().mean() >= target:
                return step + 1
    return None


data = digits()
batches, reached, SEEDS = [16 * 2**i for i in range(7)], {}, 3
with when_solved():
    guessed("scaling.lars")
    print("batch   " + "".join(f"{batch:8,}" for batch in batches))
    for rule, lr in (("SGD", 0.02), ("LARS", 0.04)):
        runs = []
        for seed in range(SEEDS):
            each = progress(batches, f"{rule}, run {seed + 1} of {SEEDS}: batch")
            runs.append([steps_to(0.95, batch, rule, lr, seed) for batch in each])
            print(f"{rule:6}{seed:2}" + "".join(f"{count or 'never':>8}" for count in runs[-1]))
        ordered = [sorted(steps, key=lambda count: count or math.inf) for steps in zip(*runs)]
        reached[rule] = [steps[SEEDS // 2] for steps in ordered]  # the median
    reveal("scaling.lars", reached["LARS"][batches.index(512)] or 400)

# %%
if len(reached) == 2:
    figure, axes = plt.subplots(figsize=(9.6, 3.4), layout="constrained")
    for (rule, steps), color, height in zip(reached.items(), (style.BLUE, style.ORANGE), (400, 280), strict=True):
        found = [(batch, count) for batch, count in zip(batches, steps, strict=True) if count]
        axes.plot(*zip(*found, strict=True), "o-", color=color, label=f"{rule}, linear scaling, 20 steps of warm-up")
        for batch in [batch for batch, count in zip(batches, steps, strict=True) if not count]:
            axes.annotate(f"{rule} never", (batch, height), color=color, ha="center")
    first = reached["SGD"][0]
    axes.plot(
        batches,
        [first * 16 / batch for batch in batches],
        color=style.GREY,
        linestyle=":",
        label="half the steps with twice the batch",
    )
    axes.set(xscale="log", yscale="log", ylim=(1.5, 600), xlabel="batch", ylabel="steps to 95 %")
    style.ticks(axes.xaxis, batches, [f"{batch:,}" for batch in batches])
    style.ticks(axes.yaxis, [10, 100], ["10", "100"])
    axes.set_title("Digits: steps until 95 % of the held-out images are right, median of three seeds")
    axes.legend(loc="lower left")
    plt.show()

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# While the batch is small, twice the batch needs about half the steps, so twice the machines need half the time. Then the curve becomes flat: beyond the
# **critical batch** (McCandlish et al. 2018) the gradient is accurate enough, and further samples add little. Linear scaling alone fails even earlier: with the
# largest batches the rate is so high that training fails with most seeds. With 512 LARS still succeeds, because it limits each layer's step in proportion to
# its weights; with 1,024, half of all digits, it fails, too. (These are three seeds and one small network.)
# </details>

# %% [markdown]
# ## Sixteen bits
#
# On a V100, tensor cores multiply 16-bit numbers eight times as fast as its other cores multiply 32-bit ones, and messages have half the bytes. But the
# smallest FP16 number is $2^{-24}$: anything below half of it becomes 0, and in a deep network most gradients of activations are that small. So you multiply
# the *loss* by a scale, and by the chain rule this scales every gradient. Before the update you divide the gradients again, in float32, which also holds the
# weights' **master copy** (Micikevicius et al. 2018).
#
# How large should the scale be? As large as possible. If a gradient overflows to infinity or NaN, skip the step and halve the scale. After `interval` good
# steps in a row, double it. All ranks must do the same. If ranks hold shares of the gradient (lab {{number sharding}}), or check it before they sum it, it may
# overflow on only one rank. If only this rank skips the step, its weights differ from the others' from then on, and nothing reports it.

# %% [markdown]
# {{exercise loss_scaler}}
#
# Write the scaler. `step` gets gradients of the scaled loss in FP16, and `update`, a function of the list of unscaled gradients in float32: it clips and steps.
# If you skip a step, do not call it, so that the optimizer's own count of steps (Adam's $t$) does not advance, either.
#
# <details><summary>Hint 1: what to send</summary>
#
# One number: 1.0 if one of this rank's gradients has a value that is not finite, else 0.0. `x.isfinite().all()` asks
# one tensor. After `comm.all_reduce`, which adds up, every rank knows whether any rank must skip.
# </details>
# <details><summary>Hint 2: when does it grow?</summary>
#
# Count good steps in `self.good`; reset it to 0 when the scale grows and when a step is skipped.
# </details>


# %%
class LossScaler:
    """A scale for the loss, equal on all ranks.

    growth, backoff: factors of the scale after `interval` good steps in a row, and after a
    skipped step.
    """

    def __init__(
        self,
        comm,
        scale: float = 2.0**15,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
    ):
        # BEGIN SOLUTION
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0
        # END SOLUTION

    def step(self, gradients: list[Tensor], update) -> bool:
        """Call update(gradients / scale), unless any rank has a number that is not finite;
        adapt the scale.

        Returns whether update was called, which is equal on all ranks. Send one number, in
        one all-reduce.
        """
        # BEGIN SOLUTION
        unscaled = [x.float() / self.scale for x in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True
        # END SOLUTION


# %%
check("scaling.loss_scaler")

# %% [markdown]
# **How large are the gradients?** Below are the gradients of the hidden activations of a network with six layers on the digits, after a few hundred steps, when
# it classifies most images correctly. How many are 0 in FP16? Raise the scale until hardly any are; then continue until the largest overflows. What do BF16 and
# the two formats of FP8 need?

# %%
guess(
    "scaling.vanished",
    "How many of these gradients are 0 in FP16, without a scale?",
    unit="%",
)

# %%
with when_solved():
    guessed("scaling.vanished")
    gradients, vanished = loss_scale.of_the_digits(), {}
    print("share of the gradients that vanish in FP16")
    for power in (0, 8, 15):
        vanished[power] = (round_nearest(gradients * 2.0**power, FP16) == 0).float().mean()
        print(f"   scale 2^{power:<3}{100 * vanished[power]:6.1f} %")
    reveal("scaling.vanished", 100 * vanished[0])
    display(loss_scale.explorable())

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# More than half of them are 0 without a scale, and fewer than one in a hundred with $2^{15}$. There is still room above, since even the largest gradients of
# activations are small. BF16 has the exponents of float32 and needs no scale, but keeps only 8 bits of each number. FP8 with 5 bits of exponent reaches as far
# up as FP16, but not as far down. FP8 with 4 bits covers only a small range: it needs a scale for each tensor.
# </details>

# %% [markdown]
# ## The input
#
# Data sets rarely fit into memory. The lectures name MS COCO with 19 GB, and ImageNet with 180 GB for 1,000 classes and a few TB for 22,000. At 27,500 images
# per second the 1.28 million images of those 180 GB pass in 47 s, so the disks must deliver 3.9 GB per second.
#
# Every sample is read, decoded, cropped and rotated, and it is expensive if GPUs wait for it. Each stage has some workers: the **slowest stage** sets the rate.
# Batches are loaded ahead into a queue with **room** for a few of them. The queue evens out loading times that vary, but it cannot hide a stage that is too
# slow.
#
# Which rank takes which samples? In each epoch all ranks draw the same new order from a seed. A step's batch is a piece of this order, and each rank takes its
# share of the piece. So the number of the step determines the samples, on *any* number of ranks: a training that is resumed in the middle of an epoch, with
# fewer ranks, sees no sample twice and misses none.


# %%
def shuffled(n: int, seed: int, epoch: int) -> Tensor:
    """Return the samples 0 to n-1 in the order of this epoch."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(1_000_003 * seed + epoch))


# %% [markdown]
# {{exercise loading}}
#
# Compute the input's rate, the time that a training waits for it, and each rank's samples. In `waiting`, a worker takes the next batch as soon as it is free
# and there is room: `room` is the number of batches that may be loaded or loading, but not yet taken. The training takes them in order, each as soon as it is
# loaded and the previous step is done.
#
# <details><summary>Hint 1: a list of workers</summary>
#
# `free = [0.0] * workers` says when each worker is free; the next batch goes to `free.index(min(free))`. Batch i begins to load at the later of `min(free)`
# and, if i >= room, `taken[i - room]`.
# </details>
# <details><summary>Hint 2: the training</summary>
#
# It takes batch i when the batch is loaded and the previous step is done, whichever is later. It waits from the end of the previous step until then.
# </details>
# <details><summary>Hint 3: samples</summary>
#
# An epoch has `-(-n // batch)` steps: n / batch, rounded up. `divmod(step, steps)` returns the epoch and the step in it.
# </details>


# %%
def input_rate(stages: list[tuple[int, float]]) -> float:
    """Return samples per second through stages of (workers, seconds of one for a sample).

    >>> input_rate([(2, 0.5), (3, 0.6)])
    4.0
    """
    # BEGIN SOLUTION
    return min(workers / seconds for workers, seconds in stages)
    # END SOLUTION


def waiting(load: list[float], compute: float, workers: int, room: int) -> float:
    """Return the seconds that a training waits for input, from its start to the last batch.

    load: seconds that a worker takes for each batch. compute: seconds of a step.

    >>> waiting([2.0, 2.0, 2.0], compute=1.0, workers=1, room=2)
    4.0
    """
    # BEGIN SOLUTION
    free, taken, waited, done = [0.0] * workers, [], 0.0, 0.0
    for i, seconds in enumerate(load):
        begin = max(min(free), taken[i - room] if i >= room else 0.0)
        free[free.index(min(free))] = begin + seconds
        taken.append(max(done, begin + seconds))
        waited += taken[-1] - done
        done = taken[-1] + compute
    return waited
    # END SOLUTION


def samples(step: int, rank: int, p: int, n: int, batch: int, seed: int) -> Tensor:
    """Return this rank's samples in step 0, 1, ...: its share, as `tensor_split` cuts it.

    batch: of all ranks together; the last batch of an epoch may be smaller.

    >>> torch.cat([samples(3, rank, 2, 6, 4, seed=0) for rank in range(2)]).tolist()
    [3, 4]
    """
    # BEGIN SOLUTION
    epoch, i = divmod(step, -(-n // batch))
    return shuffled(n, seed, epoch)[i * batch : (i + 1) * batch].tensor_split(p)[rank]
    # END SOLUTION


# %%
check("scaling.loading")

# %% [markdown]
# ## Live: too slow on purpose
#
# `hpcdl.data.loader` reads samples from shards on disk: its workers, which are threads of this kernel, load batches ahead into a queue. Here decoding and
# training both sleep to take some time. The table shows the measured waiting next to your prediction.

# %%
from tempfile import TemporaryDirectory

from hpcdl.data.loader import Loader, Shards, write_shards


def measured_waiting(
    shards: Shards,
    seconds: list[float],
    compute: float,
    workers: int,
    room: int,
) -> float:
    """Return the seconds that a training waits, if sample i takes seconds[i] to decode."""

    def decode(sample: dict) -> dict:
        time.sleep(seconds[int(sample["number"])])
        return sample

    with Loader(shards, 1, decode=decode, workers=workers, queue=room, seed=0) as loader:
        for _ in loader:
            time.sleep(compute)
        return sum(timed.waited for timed in loader.timed)


with when_solved(), TemporaryDirectory() as folder:
    write_shards(folder, ({"number": number} for number in range(40)))
    g = torch.Generator().manual_seed(0)
    seconds = [0.004 + 0.026 * draw for draw in torch.rand(40, generator=g).tolist()]
    load = [seconds[number] for number in shuffled(40, seed=0, epoch=0)]  # in the order of loading
    print(f"40 batches, {sum(load) / 40:.3f} s to load, 0.010 s to train: seconds waited, predicted")
    for workers, room in ((1, 1), (1, 8), (2, 2), (2, 8), (4, 8)):
        took = measured_waiting(Shards(folder), seconds, 0.010, workers, room)
        right = waiting(load, 0.010, workers, room)
        rate = input_rate([(workers, sum(load) / 40)])
        print(f"   {workers} workers, room for {room}{took:8.2f}{right:8.2f}    loaders: {rate:4.0f} batches/s of 100")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# One worker is too slow, and room does not help. Two workers are just about fast enough: room for eight instead of two makes up for slow batches. With four
# workers, the training waits only for the first batch.
# </details>
#
# **Where should this work run?** A CPU can rotate and scale images, or join and group tables, row by row or a column at a time with vector instructions; a GPU
# does it with thousands of threads. cuDF and cuML execute the calls of pandas and scikit-learn on a GPU, so that the data are where the training needs them.
# There is no GPU here. But you can measure the step from rows to columns, which comes first and is often enough:

# %%
table = torch.rand(200_000, 8)
begin = time.perf_counter()
some = [[(value - 0.5) / 0.29 for value in row] for row in table[:5_000].tolist()]
by_rows = (time.perf_counter() - begin) * len(table) / 5_000
begin = time.perf_counter()
columns = (table - table.mean(0)) / table.std(0)
by_columns = time.perf_counter() - begin
print(f"to standardize {len(table):,} rows of 8 numbers: row by row {by_rows:.2f} s, by columns {by_columns:.3f} s")

# %% [markdown]
# ## A run, predicted
#
# An **iteration** on $p$ ranks has four parts:
#
# | part | |
# |---|---|
# | compute | forward and backward, as on one rank |
# | stragglers | all wait for the slowest rank, which takes `late` times as long |
# | exposed | messages after the end of the backward pass, with the best buckets, summed by a ring |
# | input | the time by which loading the next batch exceeds all of this |
#
# A ring's all-reduce of $n$ bytes takes $2(p-1)\,\alpha + 2\frac{p-1}{p}\,n\,\beta$ (lab 07): so from $\alpha$ and $\beta$ of one message you get $\alpha$ and
# $\beta$ of the all-reduce, for `fuse` and `wfbp`.

# %% [markdown]
# {{exercise prediction}}
#
# Write the prediction. `predict` puts the parts of an iteration together: the ranks' computing, their waiting for the slowest rank (all of its times are `late`
# times as long), the messages that are left when its backward pass is over, and the loading that is left after all this.
#
# <details><summary>Hint 1: late gradients</summary>
#
# On the slowest rank each gradient is ready at `late * ready`, and its backward pass is over at `late * gradients[-1][0]`.
# </details>
# <details><summary>Hint 2: exposed</summary>
#
# A ring of p ranks sends 2(p − 1) messages of a p-th each: so much for the latency and for the seconds per byte. With
# these, fuse the late gradients and look when the last of their messages ends. What is left after the backward pass is
# exposed.
# </details>


# %%
def predict(
    forward: float,
    gradients: list[tuple[float, int]],
    p: int,
    alpha: float,
    beta: float,
    late: float = 1.0,
    loading: float = 0.0,
) -> dict[str, float]:
    """Return an iteration's seconds on p ranks: "compute", "stragglers", "exposed",
    "input".

    gradients: (seconds since the backward pass began, bytes); the last one ends the pass.
    alpha, beta: of one message. loading: seconds for the next batch, begun with this one.

    >>> predict(1.0, [(1.0, 10), (2.0, 10)], 2, alpha=0.5, beta=0.1, loading=7.0)
    {'compute': 3.0, 'stragglers': 0.0, 'exposed': 3.0, 'input': 1.0}
    """
    # BEGIN SOLUTION
    ring = 2 * (p - 1) * alpha, 2 * (p - 1) / p * beta
    ready = [(late * when, nbytes) for when, nbytes in gradients]
    compute = forward + gradients[-1][0]
    end = wfbp(fuse(ready, *ring), *ring)[-1][1]
    parts = {"compute": compute, "stragglers": (late - 1) * compute}
    parts["exposed"] = end - ready[-1][0]
    parts["input"] = max(0.0, loading - sum(parts.values()))
    return parts
    # END SOLUTION


# %%
check("scaling.prediction")

# %%
with when_solved():
    printed = {"Inception V3": (inception_v3, 90), "ResNet-101": (resnet101, 90), "VGG-16": (vgg16, 68)}
    beta, late = 1 / (25 * GIGABIT * USABLE), scaling.slowest(512, SPREAD)
    print("512 GPUs in 128 servers, 25 Gb/s: ms of an iteration;")
    print("efficiency, and what Horovod's page prints")
    print(f"{'':13}{'compute':>10}{'stragglers':>12}{'exposed':>9}{'input':>7}{'predicted':>11}{'printed':>9}")
    for name, (layers, efficiency) in printed.items():
        seconds = 64 / IMAGES_PER_SECOND[name]
        ready = [tuple(gradient) for gradient in scaling.gradients(layers(), 2 * seconds / 3)]
        parts = predict(seconds / 3, ready, 128, RDMA, beta, late)
        shown = [1e3 * parts[part] for part in ("compute", "stragglers", "exposed", "input")]
        print(f"{name:13}{shown[0]:10.0f}{shown[1]:12.0f}{shown[2]:9.0f}{shown[3]:7.0f}", end="")
        print(f"{100 * seconds / sum(parts.values()):9.0f} %{efficiency:7} %")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# For three networks we make one set of assumptions (how much of a link you can use, how much step times spread), and fit nothing to the single run. The
# predictions are at most four points off. Only VGG-16 waits for its messages.
# </details>
#
# ## An audit
#
# The lecture's case study (ResNet-50 on P40 GPUs, eight to a node) says:
#
# | the slide | number |
# |---|---|
# | one node of 8 GPUs | 218 images/s |
# | 128 nodes, 1,024 GPUs | about 27,500 images/s |
# | efficiency | 25,700 / 218 / 128 = 99.2 % |
# | 90 epochs of 1.28 million images on 1,024 GPUs | 7.8 minutes |
# | 90 epochs on 2,048 GPUs | 6.6 minutes, "only 18 % improvement" |
#
# These numbers cannot all be true. Check each one against the others before you run the next cell. A P40 does 11.76 TFLOP/s, and ResNet-50 takes 3.9 G MACs
# forward for an image. **Correct one label and one digit swap, and five numbers agree:** 218 images/s, 1,024 GPUs, 99.2 %, 90 epochs, and the minutes. Which ones?

# %%
guess(
    "scaling.audit",
    "How many minutes must the slide have meant for 90 epochs on 1,024 GPUs?",
    unit="minutes",
)

# %%
images = 90 * 1.28e6
print(f"27,500 images/s for 7.8 minutes: {27_500 * 7.8 * 60 / 1.28e6:.1f} epochs")
print(f"25,700 / 218 / 128 = {100 * 25_700 / 218 / 128:.1f} %;  27,500 / 218 / 128 = {100 * 27_500 / 218 / 128:.1f} %")
for what, rate in (("a node", 218 / 8), ("a GPU", 218)):
    print(f"218 images/s on {what}: {100 * rate * 6 * 3.9e9 / 11.76e12:.0f} % of a P40's peak in float32")
print(
    f"90 epochs in 7.8 minutes: {images / (7.8 * 60):,.0f} images/s, {images / (7.8 * 60) / 1024:.0f} on each of 1,024 GPUs"
)

# %%
with when_solved():
    guessed("scaling.audit")
    minutes = images / (218 * 1024 * 0.992) / 60
    reveal("scaling.audit", minutes)
    print(f"218 images/s on each of 1,024 GPUs at 99.2 %: {218 * 1024 * 0.992:,.0f} images/s, {minutes:.2f} minutes")
    print(f"2,048 GPUs in 6.6 minutes: {8.7 / 6.6:.2f} times the speed, {100 * 8.7 / 6.6 / 2:.0f} % of it for each GPU")

# %% [markdown]
# <details><summary>What fits together?</summary>
#
# - **218 images/s belong to one GPU, not to a node.** One P40 then reaches 43 % of its peak in float32; as the speed of eight GPUs it would be 5 %.
# - **7.8 minutes are 8.7 with the digits swapped.** 218 images/s on each of 1,024 GPUs at 99.2 % finish 90 epochs in 8.67 minutes. Now all five numbers agree.
# - 27,500 images/s are what 128 *GPUs* do, not 128 nodes: 128 × 218 × 99.2 % = 27,681. The 25,700 on the slide has its digits swapped, too; it would give 92.1 %.
# - The "18 %" come from 7.8 / 6.6. With 8.7 minutes, 2,048 GPUs are **1.32** times as fast as 1,024, and each GPU keeps 66 % of its speed.
# - 64 images on each of 2,048 GPUs would be a batch of 131,072. The paper behind the slide trains with at most 65,536 (Jia et al. 2018, "Highly Scalable Deep
#   Learning Training System with Mixed-Precision"), so that each GPU has 32 images, and messages weigh twice as much.
#
# Numbers in talks are retyped, rounded and swapped, as in papers. If you recompute them, you notice.
# </details>
#
# ## Live: buckets on two engines
#
# Two engines, which are MPI processes next to this kernel, one for each core, train 24 small layers with data parallelism by `hpcdl.ddp`, with 1 to 24 layers
# in a bucket. First they measure what you need: the time of an all-reduce by its bytes, and of the passes alone. Then the picture compares your `wfbp` with
# each measured step.
#
# How many buckets are best on *this* machine, where the cores that compute must also carry the messages of both ranks?

# %%
guess(
    "scaling.buckets",
    "How many of the 24 layers in each bucket give the shortest step on this machine?",
    choices=("1", "2", "4", "8", "24"),
)

# %%
from hpcdl.cluster import Cluster
from hpcdl.collectives import ring_all_reduce
from hpcdl.cost.alpha_beta import fit
from hpcdl.ddp import DistributedDataParallel

DEEP, WIDE, ROWS, SIZES = 24, 128, 64, (4_000, 64_000, 400_000, 1_600_000)
LAYERS_TOGETHER = (1, 2, 4, 8, 24)


def fastest(action, times: int) -> float:
    """Return the seconds of the fastest run."""
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        action()
        took.append(time.perf_counter() - begin)
    return min(took)


def deep_network() -> nn.Module:
    """Return a network that is equal on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(*[part for _ in range(DEEP) for part in (nn.Linear(WIDE, WIDE, bias=False), nn.Tanh())])


def measure_buckets(comm):
    """Return seconds of all-reduces by size, of both passes without messages, and of a step by layers in a bucket."""
    torch.set_num_threads(1)
    messages = [torch.zeros(nbytes // 4) for nbytes in SIZES]
    links = [fastest(lambda x=x: (comm.barrier(), ring_all_reduce(x, comm)), 15) for x in messages]
    model, x = deep_network(), torch.randn(ROWS, WIDE, generator=torch.Generator().manual_seed(comm.rank))
    forward = fastest(lambda: model(x), 30)
    both = fastest(lambda: model(x).square().mean().backward(), 30)
    steps = []
    for together in LAYERS_TOGETHER:
        ddp = DistributedDataParallel(deep_network(), comm, bucket_mb=together * 4 * WIDE**2 / 2**20)

        def step(ddp=ddp):
            comm.barrier()
            ddp(x).square().mean().backward()
            ddp.synchronize()

        steps.append(fastest(step, 40))
    return links, forward, both - forward, steps


cluster = Cluster(n=2).start()
try:
    links, forward, backward, steps = cluster.run(measure_buckets, timeout=60)[0]
finally:
    cluster.stop()
alpha, beta, _ = fit(SIZES, links)
print(f"an all-reduce takes {1e6 * alpha:.0f} µs and {1e9 * beta:.2f} ns for each byte")
print(f"a forward pass takes {1e3 * forward:.2f} ms, a backward pass {1e3 * backward:.2f} ms")

# %%
with when_solved():
    guessed("scaling.buckets")
    nbytes, predicted = 4 * WIDE**2, []
    ready = [(backward * (k + 1) / DEEP, nbytes) for k in range(DEEP)]
    for together in LAYERS_TOGETHER:
        buckets = [(ready[k + together - 1][0], together * nbytes) for k in range(0, DEEP, together)]
        predicted.append(forward + wfbp(buckets, alpha, beta)[-1][1])
    best = fuse(ready, alpha, beta)
    figure, axes = plt.subplots(figsize=(9.6, 3.4), layout="constrained")
    axes.plot(LAYERS_TOGETHER, [1e3 * seconds for seconds in steps], "o-", color=style.BLUE, label="measured")
    axes.plot(
        LAYERS_TOGETHER,
        [1e3 * seconds for seconds in predicted],
        "x--",
        color=style.ORANGE,
        label="predicted: your wfbp",
    )
    soonest = 1e3 * (forward + wfbp(best, alpha, beta)[-1][1])
    axes.axhline(soonest, color=style.GREEN, linestyle=":", label=f"the best: {len(best)} buckets")
    axes.set(xscale="log", xlabel="layers in a bucket", ylabel="a step, ms", ylim=(0, None))
    axes.set_title("Two ranks: a step by the size of its buckets")
    style.ticks(axes.xaxis, LAYERS_TOGETHER, [str(together) for together in LAYERS_TOGETHER])
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    plt.show()
    reveal("scaling.buckets", str(LAYERS_TOGETHER[steps.index(min(steps))]))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The measured steps usually take longer than predicted. Each bucket costs work in addition to its messages, and if both cores compute, no hardware carries a
# message for free, so hiding it gains little. Look at your $\alpha$: if it is large, both curves fall at first, because one message per layer is slow; if it is
# small, the prediction is nearly flat. The measured curve also depends on what else this machine does. With network cards that carry messages themselves, the
# two curves come closer; here, you must measure.
# </details>

# %% [markdown]
# ## For those who want more
#
# This challenge has no points and no check, but a proof to demand of yourself.
#
# Exchange less often: *local SGD* (S. Stich 2019) lets each rank take $k$ steps on its own, and then averages the weights. Write it over `comm`. *Proof:*
# $k = 1$ gives the weights of data-parallel training; the trace has a $k$-th of the bytes; and for the digits: up to which $k$ do 95 % take no more epochs?
# Where in the first picture of this lab, "From ideal to what is left", do you see the gain, and where the price?

# %% [markdown]
# ## Further reading
#
# - P. Goyal et al. 2017, "Accurate, large minibatch SGD: Training ImageNet in 1 hour"; Y. You, I. Gitman, B. Ginsburg 2017, "Large batch training of convolutional
#   networks" (LARS); Y. You et al. 2020, "Large batch optimization for deep learning: Training BERT in 76 minutes" (LAMB).
# - S. McCandlish et al. 2018, "An empirical model of large-batch training": the critical batch, and how to predict it.
# - P. Micikevicius et al. 2018, "Mixed precision training".
# - S. Shi, X. Chu, B. Li 2019, "MG-WFBP: Efficient data communication for distributed synchronous SGD algorithms"; H. Zhang et al. 2017, "Poseidon".
