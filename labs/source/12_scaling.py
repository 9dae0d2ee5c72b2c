# %% [markdown]
# # Lab 12 · To 1,024 GPUs and 2,048
# ## Counting work, fusion, large batches, mixed precision, input, rooflines
#
# A lecture's case study: ResNet-50 on 1,024 GPUs at 99.2 % efficiency, and on 2,048 only 18 % faster than on 1,024. Where did the other half go?
#
# Between one GPU and two thousand there are five leaks: the input that does not keep up, messages that are not hidden, ranks that wait for the slowest, numbers that
# fall out of 16 bits, and the batch itself, which grows with the machines until a step with twice the samples learns hardly more. Here you count, predict and
# mend each of them, and then put them together into one prediction that is held against published runs.
#
# **You will be able to**
# - count operations, weights and bytes of convolution networks and transformers, and say what share of a machine's peak a training reaches;
# - put gradients into buckets so that no other buckets would finish sooner;
# - train with batches of thousands: linear scaling, warm-up, LARS, LAMB;
# - train in 16 bits, with a loss scale on which all ranks agree;
# - say whether the input keeps up, and go on in the middle of an epoch with another number of ranks;
# - predict a run before you pay for it.
#
# **100 points, 7 exercises, about two hours.** You need lab 07; labs 06 and 08 help. MPI came with the installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$ | ranks |
# | $\alpha, \beta$ | seconds of a message, and of each of its bytes (lab 08) |
# | $b, s, h, V$, layers | a transformer's batch, sequence length, hidden size, vocabulary (lab 10) |
# | $\eta$ | a learning rate; $\beta_1, \beta_2$ are Adam's, as everywhere |

# %%
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from autograder import check
from hpcdl.widgets import style, when_solved

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## How much there is to do
#
# A **multiply-accumulate** (MAC) is one multiplication and one addition: two operations. For one sample,
#
# - a convolution of `channels` maps to `filters` maps with kernels of $k \times k$ does at each of the $size \times size$ places (stride 1, padded) one MAC for each
#   weight. In **groups**, a filter sees only the maps of its group: `channels / groups` of them;
# - a linear layer does for each token one MAC for each weight;
# - attention does for each pair of tokens and each of $h$ features two: one for the score, one for the weighted mean. It has no weights of its own. (A causal mask
#   hides half of the scores; plain products compute them all the same.)
#
# The **backward** pass takes two such products for one of the forward pass: the gradient of the weights, and that of the inputs. The first layer's inputs are data,
# so one of the two is saved there. What was not kept is computed again: one more forward pass.
#
# And bytes: what comes in, what goes out, and the weights, once for the whole batch. The scores of attention need never leave the chip, so they do not count.

# %% [markdown]
# {{exercise work}}
#
# <details><summary>Hint 1: a convolution</summary>
#
# `weights = filters * (channels // groups) * kernel**2`, and each is used `size**2` times.
# </details>
# <details><summary>Hint 2: backward</summary>
#
# `forward * (2 if i else 1)`, and `+ again * forward`: True counts as 1.
# </details>


# %%
def conv(channels: int, filters: int, kernel: int, size: int, groups: int = 1) -> tuple[int, int, int]:
    """Weights, MACs for one image, numbers in and out for one image; size x size, stride 1.

    >>> conv(3, 8, kernel=3, size=10)
    (216, 21600, 1100)
    """
    # BEGIN SOLUTION
    weights = filters * (channels // groups) * kernel**2
    return weights, weights * size**2, (channels + filters) * size**2
    # END SOLUTION


def linear(tokens: int, inputs: int, outputs: int) -> tuple[int, int, int]:
    """The same of y = x W, where x is tokens x inputs.

    >>> linear(tokens=10, inputs=2, outputs=3)
    (6, 60, 50)
    """
    # BEGIN SOLUTION
    return inputs * outputs, tokens * inputs * outputs, tokens * (inputs + outputs)
    # END SOLUTION


def attention(tokens: int, hidden: int) -> tuple[int, int, int]:
    """The same of softmax(q kᵀ) v, where q, k and v are tokens x hidden.

    >>> attention(tokens=10, hidden=2)
    (0, 400, 80)
    """
    # BEGIN SOLUTION
    return 0, 2 * tokens**2 * hidden, 4 * tokens * hidden
    # END SOLUTION


def work(layers: list[tuple], batch: int, again: bool = False) -> list[tuple]:
    """Of each layer, for the batch: operations forward, backward, bytes forward in float32.

    layers: from the first, each as `conv` gives it. again: the backward pass computes each
    layer's forward pass once more, and counts it.

    >>> work([linear(1, 2, 3), linear(1, 3, 3)], batch=10)
    [(120, 120, 224), (180, 360, 276)]
    """
    # BEGIN SOLUTION
    rows = []
    for i, (weights, macs, moved) in enumerate(layers):
        forward = 2 * batch * macs
        backward = forward * (2 if i else 1) + again * forward
        rows.append((forward, backward, 4 * (batch * moved + weights)))
    return rows
    # END SOLUTION


# %%
check("scaling.work")


# %%
def train_counts(channels: int, side: int, batch: int) -> list[tuple[str, float, float]]:
    """Three layers of as many outputs: name, operations forward, operations for each byte."""
    layers = {
        "3 x 3 convolution": conv(channels, channels, 3, side),
        "1 x 1 convolution": conv(channels, channels, 1, side),
        "depthwise 3 x 3": conv(channels, channels, 3, side, channels),
        "linear": linear(1, channels * side * side, 1000),
    }
    rows = work(list(layers.values()), batch)
    return [(name, forward, forward / nbytes) for name, (forward, _, nbytes) in zip(layers, rows, strict=True)]


with when_solved():
    print("256 channels, 14 x 14 places: operations, and operations per byte, for a batch of 1 and of 32")
    for (name, *one), (_, *many) in zip(train_counts(256, 14, 1), train_counts(256, 14, 32), strict=True):
        print(f"{name:20}{one[0]:10.1e}{one[1]:8.1f}   {many[0]:10.1e}{many[1]:8.1f}")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The linear layer has two operations for each weight that it reads, and so for a single sample half an operation for each byte; a batch shares the reading, and
# is what makes it worth a GPU. A depthwise convolution has as little to do for each number, and no batch helps it: its weights were never the problem.
# </details>

# %% [markdown]
# ## What is reached
#
# A layer of a transformer has linear layers $h \times 3h$ (queries, keys, values), $h \times h$, $h \times 4h$ and $4h \times h$, and attention; after the last
# layer each token is compared with all $V$ words of the vocabulary. (The embedding at the beginning looks words up: no product.) Forward and backward of one
# iteration are three times the forward pass.
#
# **Utilization** is the share of the machine's peak that this uses. Two kinds are in use, and papers mix them (Chowdhery et al. 2022): the *model's* counts what the
# model needs; the *hardware's* also what is computed again to save memory. A training that computes more again has the better hardware utilization, and is no
# faster.
#
# For a whole training there is a rule: $6$ operations for each parameter and token, $8$ where the whole forward pass is computed again.

# %% [markdown]
# {{exercise utilization}}
#
# <details><summary>Hint 1: by layers</summary>
#
# $24\,b s h^2$ and $4\,b s^2 h$ forward in each layer, $2\,b s h V$ for the output; three times that.
# </details>
# <details><summary>Hint 2: the rule</summary>
#
# `(8 if again else 6) * parameters * tokens`, by what all GPUs really do in a second.
# </details>


# %%
def transformer_flops(layers: int, hidden: int, sequence: int, vocabulary: int, batch: int) -> float:
    """Operations of one iteration, forward and backward, with nothing computed again.

    >>> transformer_flops(layers=2, hidden=4, sequence=8, vocabulary=10, batch=3)
    80640
    """
    # BEGIN SOLUTION
    tokens = batch * sequence
    layer = 24 * tokens * hidden**2 + 4 * tokens * sequence * hidden
    return 3 * (layers * layer + 2 * tokens * hidden * vocabulary)
    # END SOLUTION


def utilization(flops: float, again: float, seconds: float, gpus: int, peak: float) -> tuple[float, float]:
    """Shares of the peak of all GPUs: the model's operations, and those of the hardware.

    flops: what the model needs; again: what is computed once more. peak: of one GPU.

    >>> utilization(flops=30.0, again=10.0, seconds=1.0, gpus=2, peak=50.0)
    (0.3, 0.4)
    """
    # BEGIN SOLUTION
    available = seconds * gpus * peak
    return flops / available, (flops + again) / available
    # END SOLUTION


def train_seconds(
    parameters: float,
    tokens: float,
    gpus: int,
    peak: float,
    share: float,
    again: bool = False,
) -> float:
    """Seconds of a training, if each GPU reaches `share` of its peak.

    >>> train_seconds(1e9, 1e9, gpus=10, peak=1e14, share=0.5)
    12000.0
    """
    # BEGIN SOLUTION
    return (8 if again else 6) * parameters * tokens / (gpus * peak * share)
    # END SOLUTION


# %%
check("scaling.utilization")

# %%
with when_solved():
    sizes, scores = (96, 12288, 2048, 51200, 64), 96 * 4 * 64 * 2048**2 * 12288
    model, hardware = utilization(transformer_flops(*sizes), scores, 13.75, 64, 312e12)
    print(f"175 B parameters on 64 A100, 13.75 s: {model:.1%} and {hardware:.1%}")
    print(
        "   (printed: 51.4 and 52.8; the paper counts three times what the scores take once more. Find out by trying.)"
    )
    hours = train_seconds(37e9, 14.8e12, 2048, 989.4e12, 0.3466) / 3600
    print("DeepSeek-V3, 37 B active parameters, 14.8 T tokens, 2,048 H800 at 34.66 % of the peak in 16 bits:")
    print(f"{hours / 24:.0f} days, {2048 * hours / 1e6:.3f} million GPU hours (printed: 2.664)")

# %% [markdown]
# ## Small messages wait for large ones
#
# Gradients come out of the backward pass last layer first, and each can be summed over the ranks while the pass goes on: **wait-free backpropagation** (WFBP; the
# lecture's second picture, and your lab 07). An all-reduce of $n$ bytes takes $\alpha + \beta n$ seconds; here both are those of a whole all-reduce, as lab 08 fits
# them. There is one link, and messages go in order:
#
#     backward    4444 333 22 1111111
#     link             4444 333 22--- 1111
#
# A network has many small layers, and each message pays $\alpha$. **Fusion** puts neighbours together: the bucket pays $\alpha$ once, and is ready when its *last*
# gradient is. PyTorch closes a bucket at 25 MB; Horovod takes what is ready when the link becomes free. Neither knows $\alpha$ and $\beta$. You do, and so you can
# have the best there are.

# %% [markdown]
# {{exercise fusion}}
#
# Two hundred layers can be cut in $2^{199}$ ways. But to know the best end of the first $k$ gradients, it is enough to know the best ends of all shorter
# beginnings: the last bucket begins *somewhere*.
#
# <details><summary>Hint 1: wfbp</summary>
#
# A message begins at `max(ready, free)`, where `free` is the end of the one before.
# </details>
# <details><summary>Hint 2: the recursion</summary>
#
# `ends[k]` is the soonest that the first k gradients can be summed; `ends[0] = 0`. If the last bucket holds gradients i to k-1, it is ready at
# `gradients[k-1][0]`, and done at `max(ends[i], ready) + alpha + beta * bytes`. Take the best i.
# </details>
# <details><summary>Hint 3: the buckets themselves</summary>
#
# Keep with each `ends[k]` the buckets that lead to it: `best[k] = (end, buckets)`, where `buckets = best[i][1] + [(ready, bytes)]`.
# </details>


# %%
def wfbp(buckets: list[tuple[float, int]], alpha: float, beta: float) -> list[tuple[float, float]]:
    """When each bucket's message begins and ends; one link, in order.

    buckets: (second at which it is ready, bytes).

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


def fuse(gradients: list[tuple[float, int]], alpha: float, beta: float) -> list[tuple[float, int]]:
    """Buckets of neighbours whose last message ends as soon as any buckets' could.

    gradients and buckets: (second at which it is ready, bytes), in the order they come in.

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
    from hpcdl.nn.networks import resnet50

    layers = resnet50()
    macs, done, gradients = sum(layer.macs for layer in layers), 0, []
    for layer in reversed(layers):
        done += layer.macs
        gradients.append((0.12 * done / macs, 4 * layer.weights))
    everything = [(gradients[-1][0], sum(nbytes for _, nbytes in gradients))]
    print(
        "ResNet-50, backward pass of 120 ms: ms that are left after it, by how long a message takes to begin (4 GB/s)"
    )
    print(f"{'alpha':>10}{'layer by layer':>18}{'one bucket':>14}{'best':>10}{'buckets':>10}")
    for alpha in (1e-5, 1e-4, 1e-3, 1e-2):
        best = fuse(gradients, alpha, 1 / 4e9)
        left = [1e3 * (wfbp(buckets, alpha, 1 / 4e9)[-1][1] - 0.12) for buckets in (gradients, everything, best)]
        print(f"{1e3 * alpha:7g} ms{left[0]:18.1f}{left[1]:14.1f}{left[2]:10.1f}{len(best):10}")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Where a message costs little, any small buckets will do; where it costs much, few large ones. Nothing hides the first layer's gradient, which comes last: so the
# best last bucket is small. No rule that knows only sizes does both.
# </details>

# %% [markdown]
# ## The batch grows with the machine
#
# $p$ ranks with 64 samples each make a batch of $64\,p$, and an epoch has a $p$-th of the steps. To get as far in each step, the **learning rate grows with the
# batch**: $k$ times the batch, $k$ times $\eta$ (Goyal et al. 2017). In the first steps, when the weights change fast, that is too much: so it grows from $\eta$ to
# $k\eta$ in the first epochs, step by step. This **warm-up** and linear scaling took ResNet-50 to batches of 8,192.
#
# Beyond, some layers explode and others hardly move: the size of a gradient by the size of the weights differs by factors of hundreds between layers. **LARS** (You,
# Gitman and Ginsburg 2017) gives each tensor of weights a step in proportion to its own norm:
#
# $$v \leftarrow m\,v + \eta\,\lambda\,(g + d\,w), \qquad w \leftarrow w - v, \qquad \lambda = \frac{c\,\|w\|}{\|g\| + d\,\|w\|}$$
#
# with momentum $m$, weight decay $d$, and a trust coefficient $c$. **LAMB** (You et al. 2020) does the same with Adam's step:
#
# $$u = \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} + d\,w, \qquad w \leftarrow w - \eta\,\frac{\|w\|}{\|u\|}\,u$$
#
# where $m$ and $v$ are Adam's running means of $g$ and $g^2$. Biases and the weights of normalizations, tensors of one dimension, have neither ratio nor decay.

# %% [markdown]
# {{exercise large_batch}}
#
# All three return new values and leave their arguments alone. A ratio of which one of the two numbers is 0 is 1: else weights that begin at 0 would stay there.
#
# <details><summary>Hint 1: one tensor of LARS</summary>
#
# `size = w.norm()`, `below = g.norm() + decay * size`; the ratio is `trust * size / below` if `w.dim() > 1 and size > 0 and below > 0`, else 1.
# </details>
# <details><summary>Hint 2: LAMB</summary>
#
# First the new m and v, then the update with its corrections; add `decay * w` before you take the norm, if w has more than one dimension.
# </details>
# <details><summary>Hint 3: the learning rate</summary>
#
# During the warm-up `lr * (1 + (k - 1) * step / warmup)`. Then count the drops that have been: `sum(step >= drop for drop in drops)`.
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
    """A step of LARS: the new weights and velocities, tensor by tensor."""
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
    """Step t = 1, 2, ... of LAMB: the new weights, momenta and variances.

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
    """The learning rate of step 0, 1, ... with k times the batch for which lr is right.

    It grows in equal steps from lr at step 0 to k lr at step `warmup`; from each of `drops`
    on it is a tenth of what it was.

    >>> [lr_at(step, 1.0, k=4, warmup=3) for step in range(5)]
    [1.0, 2.0, 3.0, 4.0, 4.0]
    """
    # BEGIN SOLUTION
    grown = lr * (1 + (k - 1) * min(1.0, step / warmup)) if warmup else k * lr
    return grown * 0.1 ** sum(step >= drop for drop in drops)
    # END SOLUTION


# %%
check("scaling.large_batch")

# %% [markdown]
# ## Sixteen bits
#
# Tensor cores multiply 16-bit numbers eight times as fast as others multiply 32-bit ones, and half of the bytes travel. But FP16 ends at $2^{-24}$ below: what is
# less than half of that is 0, and in a deep network most gradients of activations are that small. So the *loss* is multiplied by a scale, and by the chain rule so
# is every gradient. Before the update they are divided again, in float32, where the weights' **master copy** lives (Micikevicius et al. 2018).
#
# How large a scale? As large as possible; when a gradient overflows, to infinity or NaN, the step is left out and the scale halved. After `interval` good steps in a
# row it is doubled. And all ranks have to do the same: where ranks keep shares of the gradient (lab 11), or look before they sum it, one of them may overflow alone.
# If it alone leaves out the step, its weights are others for ever, and nobody notices.

# %% [markdown]
# {{exercise loss_scaler}}
#
# `step` gets gradients of the scaled loss in FP16, and `update`, a function of the list of unscaled gradients in float32: it clips and steps. Where a step is left
# out it must not be called, so that the optimizer's own count of steps (Adam's $t$) stands still, too.
#
# <details><summary>Hint 1: what travels</summary>
#
# One number: `bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])`, then `comm.all_reduce(bad)`, which adds it up over the ranks.
# </details>
# <details><summary>Hint 2: when does it grow?</summary>
#
# Count good steps in `self.good`; begin again at 0 when the scale has grown and when a step was left out.
# </details>


# %%
class LossScaler:
    """A scale for the loss, the same on all ranks.

    growth, backoff: what the scale is multiplied by after `interval` good steps in a row,
    and after a step that is left out.
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
        """Call update(gradients / scale) unless a rank's are not finite; adapt the scale.

        Returns whether it was called, which is the same on all ranks.
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
# ## The input
#
# Every sample is read, decoded, cut and turned, while GPUs wait for nothing so dearly. Each stage has some workers: the **slowest stage** sets the rate. Batches are
# loaded ahead, into a queue with **room** for some of them: that evens out that some take longer than others, and hides no stage that is too slow.
#
# Whoever takes which samples? One order for all ranks and each epoch, drawn anew from a seed; the step's batch is a piece of it, and each rank takes its share of the
# piece. So the step's number alone says what comes, on *any* number of ranks: a training that is resumed in the middle of an epoch, with fewer ranks, sees no sample
# twice and misses none.


# %%
def shuffled(n: int, seed: int, epoch: int) -> Tensor:
    """The samples 0 to n-1 in the order of this epoch."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(1_000_003 * seed + epoch))


# %% [markdown]
# {{exercise loading}}
#
# In `waiting`, a worker takes the next batch as soon as it is free and there is room: `room` is how many batches may be loaded or on their way, and not yet taken.
# The training takes them in order, each as soon as it is there and the one before is computed.
#
# <details><summary>Hint 1: a list of workers</summary>
#
# `free = [0.0] * workers` says when each is free; the next batch goes to `free.index(min(free))`. With i batches before it, it begins at the later of `min(free)`
# and `taken[i - room]`, if there are that many.
# </details>
# <details><summary>Hint 2: the training</summary>
#
# It takes batch i at the later of when it is loaded and when the one before is computed: the difference is what it waits.
# </details>
# <details><summary>Hint 3: samples</summary>
#
# An epoch has `-(-n // batch)` steps: n / batch, rounded up. `divmod(step, steps)` is the epoch, and the step in it.
# </details>


# %%
def input_rate(stages: list[tuple[int, float]]) -> float:
    """Samples per second through stages of (workers, seconds that one takes for a sample).

    >>> input_rate([(2, 0.5), (3, 0.6)])
    4.0
    """
    # BEGIN SOLUTION
    return min(workers / seconds for workers, seconds in stages)
    # END SOLUTION


def waiting(load: list[float], compute: float, workers: int, room: int) -> float:
    """Seconds in which a training waits for input, from the start to its last batch.

    load: seconds that a worker takes for each batch; compute: those of a step.

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
    """The samples of this rank in step 0, 1, ...: its share, as `tensor_split` has it.

    batch: of all ranks together; the last one of an epoch may be smaller.

    >>> torch.cat([samples(3, rank, 2, 6, 4, seed=0) for rank in range(2)]).tolist()
    [1, 2]
    """
    # BEGIN SOLUTION
    epoch, i = divmod(step, -(-n // batch))
    return shuffled(n, seed, epoch)[i * batch : (i + 1) * batch].tensor_split(p)[rank]
    # END SOLUTION


# %%
check("scaling.loading")

# %% [markdown]
# ## A run, predicted
#
# **The roofline** (Williams, Waterman and Patterson 2009): a layer takes as long as its arithmetic or its memory traffic, whichever takes longer. How many operations
# it has for each byte decides which, and the machine's ridge is where they meet.
#
# An **iteration** on $p$ ranks has four parts:
#
# | part | |
# |---|---|
# | compute | forward and backward, as on one rank |
# | stragglers | all wait for the slowest, which takes `late` times as long |
# | exposed | messages after the end of the backward pass: gradients in the best buckets, summed by a ring |
# | input | what loading the next batch takes longer than all of this |
#
# A ring's all-reduce of $n$ bytes takes $2(p-1)\,\alpha + 2\frac{p-1}{p}\,n\,\beta$ (lab 07): so $\alpha$ and $\beta$ of one message make an $\alpha$ and a $\beta$
# of the all-reduce, for `fuse` and `wfbp`.

# %% [markdown]
# {{exercise prediction}}
#
# <details><summary>Hint 1: late gradients</summary>
#
# On the slowest rank each gradient is ready at `late * ready`, and its backward pass is over at `late * gradients[-1][0]`.
# </details>
# <details><summary>Hint 2: exposed</summary>
#
# With `ring = 2 * (p - 1) * alpha, 2 * (p - 1) / p * beta`, the last message of `wfbp(fuse(late_ones, *ring), *ring)` ends some time after the backward pass.
# </details>


# %%
def roof(flops: float, nbytes: float, peak: float, bandwidth: float) -> tuple[float, str]:
    """The least seconds of so many operations and bytes, and what limits them.

    "compute" or "memory"; where both take as long, "compute".

    >>> roof(flops=100.0, nbytes=60.0, peak=100.0, bandwidth=20.0)
    (3.0, 'memory')
    """
    # BEGIN SOLUTION
    arithmetic, memory = flops / peak, nbytes / bandwidth
    return max(arithmetic, memory), "compute" if arithmetic >= memory else "memory"
    # END SOLUTION


def predict(
    forward: float,
    gradients: list[tuple[float, int]],
    p: int,
    alpha: float,
    beta: float,
    late: float = 1.0,
    loading: float = 0.0,
) -> dict[str, float]:
    """The seconds of an iteration on p ranks: "compute", "stragglers", "exposed", "input".

    gradients: (seconds since the backward pass began, bytes); with the last one it is over.
    alpha, beta: of one message. loading: seconds for the next batch, begun with this one.

    >>> predict(1.0, [(1.0, 10), (2.0, 10)], 2, alpha=0.5, beta=0.1, loading=7.0)
    {'compute': 3.0, 'stragglers': 0.0, 'exposed': 2.0, 'input': 2.0}
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
