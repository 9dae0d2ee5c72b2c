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
