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
def conv(
    channels: int, filters: int, kernel: int, size: int, groups: int = 1
) -> tuple[int, int, int]:
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
def transformer_flops(
    layers: int, hidden: int, sequence: int, vocabulary: int, batch: int
) -> float:
    """Operations of one iteration, forward and backward, with nothing computed again.

    >>> transformer_flops(layers=2, hidden=4, sequence=8, vocabulary=10, batch=3)
    80640
    """
    # BEGIN SOLUTION
    tokens = batch * sequence
    layer = 24 * tokens * hidden**2 + 4 * tokens * sequence * hidden
    return 3 * (layers * layer + 2 * tokens * hidden * vocabulary)
    # END SOLUTION


def utilization(
    flops: float, again: float, seconds: float, gpus: int, peak: float
) -> tuple[float, float]:
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
    print("   (printed: 51.4 and 52.8; the paper counts three times what the scores take once more. Find out by trying.)")
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
def wfbp(
    buckets: list[tuple[float, int]], alpha: float, beta: float
) -> list[tuple[float, float]]:
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


def fuse(
    gradients: list[tuple[float, int]], alpha: float, beta: float
) -> list[tuple[float, int]]:
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
