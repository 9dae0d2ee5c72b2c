# %% [markdown]
# # Lab {{number machines}} · What a machine can do, and what is left of it
# ## Work counted, rooflines, utilization, the hours of a training, and its profile
#
# A V100 does 112 TFLOP/s with its tensor cores. A training of ResNet-50 takes 30,000 TFLOP for each of 90 epochs: 6.7 hours. The lecture's best practice
# took 22. Where did the other 15 hours go? The machine was hardly ever idle, but it does not reach its data sheet's peak for every layer.
#
# **You will be able to**
# - count operations, weights and bytes of convolutions, transformers, activations, pooling and batch norm;
# - compute what share of a machine's peak a training reaches, by both definitions in use;
# - draw a machine's roof, place each layer under it, and compute from which batch on a layer fills the machine;
# - compute how many hours of a training the data sheet explains, how many the memory, and how many neither;
# - find the longest stalls in a profile, with their causes, and the rank that the others wait for.
#
# **100 points, 5 exercises, about 118 minutes: 25 reading + 85 exercises + 8 runs.** You need lab 05's convolutions; lab {{number attention}} helps with transformers. No GPU.
#
# | here | means |
# |---|---|
# | MAC | a multiplication and an addition: two operations |
# | $b, s, h, V$ | a transformer's batch, sequence length, hidden size, vocabulary |
# | peak, bandwidth | operations per second, and bytes of memory per second |
# | ridge | peak / bandwidth: from this number of operations per byte on, arithmetic is the limit |

# %%
import math
import time
import warnings

import matplotlib.pyplot as plt
import torch
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

from autograder import check
from hpcdl.cost.machines import MACHINES
from hpcdl.nn.lenet import lenet5
from hpcdl.nn.networks import NETWORKS, resnet50, total
from hpcdl.training.traced import device_trace, horovod_timeline, profiled, random_ready
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import under_the_roof

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## How much there is to do
#
# A **multiply-accumulate** (MAC) is one multiplication and one addition: two operations. For one sample,
#
# - a convolution of `channels` maps to `filters` maps with kernels of $k \times k$ does one MAC for each weight at each of the $size \times size$ places
#   (stride 1, padded). With **groups**, a filter sees only the maps of its group: `channels / groups` of them;
# - a linear layer does one MAC for each token and each weight;
# - attention does two MACs for each pair of tokens and each of $h$ features: one for the score, one for the weighted mean. It has no weights of its own. (A
#   causal mask hides half of the scores, but plain products still compute them.)
#
# The **backward** pass takes two such products for each product of the forward pass: the gradient of the weights, and the gradient of the inputs. The first
# layer's inputs are data, so it needs only one of the two. If activations were not kept, they are recomputed: one more forward pass.
#
# The bytes are the inputs, the outputs and, once for the whole batch, the weights. The scores of attention need never leave the chip, so they do not count.

# %% [markdown]
# {{exercise work}}
#
# Count one layer by itself: weights, multiply-accumulates (MACs) and numbers moved for one image or sequence, without biases. From these, `work` computes the
# operations and bytes of a batch: a MAC is two operations; the backward pass takes twice the forward pass, except for the first layer, whose input needs no
# gradient.
#
# <details><summary>Hint 1: a convolution</summary>
#
# With groups, each filter sees only its group's channels. Every weight is used once for each pixel of the output.
# </details>
# <details><summary>Hint 2: backward</summary>
#
# `2 if i else 1` is 1 for the first layer of the list. If activations are recomputed, the forward pass runs once more,
# in every layer.
# </details>


# %%
def conv(
    channels: int,
    filters: int,
    kernel: int,
    size: int,
    groups: int = 1,
) -> tuple[int, int, int]:
    """Return weights, MACs, numbers in and out of a convolution for one image of size x
    size at stride 1.

    >>> conv(3, 8, kernel=3, size=10)
    (216, 21600, 1100)
    """
    # BEGIN SOLUTION
    weights = filters * (channels // groups) * kernel**2
    return weights, weights * size**2, (channels + filters) * size**2
    # END SOLUTION


def linear(tokens: int, inputs: int, outputs: int) -> tuple[int, int, int]:
    """Return weights, MACs, numbers in and out of y = x W, where x is tokens x inputs.

    >>> linear(tokens=10, inputs=2, outputs=3)
    (6, 60, 50)
    """
    # BEGIN SOLUTION
    return inputs * outputs, tokens * inputs * outputs, tokens * (inputs + outputs)
    # END SOLUTION


def attention(tokens: int, hidden: int) -> tuple[int, int, int]:
    """Return weights, MACs, numbers in and out of softmax(q kᵀ) v; q, k and v are tokens x
    hidden.

    >>> attention(tokens=10, hidden=2)
    (0, 400, 80)
    """
    # BEGIN SOLUTION
    return 0, 2 * tokens**2 * hidden, 4 * tokens * hidden
    # END SOLUTION


def work(layers: list[tuple], batch: int, again: bool = False) -> list[tuple]:
    """Return for each layer and the whole batch: operations forward, operations backward,
    bytes forward in float32.

    layers: from the first, each as `conv` returns it. again: whether the backward pass
    recomputes each layer's forward pass, which then counts.

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
check("machines.work")


# %%
def train_counts(channels: int, side: int, batch: int) -> list[tuple[str, float, float]]:
    """Return four layers' name, operations forward, and operations per byte."""
    layers = {
        "3 x 3 convolution": conv(channels, channels, 3, side),
        "1 x 1 convolution": conv(channels, channels, 1, side),
        "depthwise 3 x 3": conv(channels, channels, 3, side, channels),
        "linear": linear(1, channels * side * side, 1000),
    }
    rows = work(list(layers.values()), batch)
    return [(name, forward, forward / nbytes) for name, (forward, _, nbytes) in zip(layers, rows, strict=True)]


with when_solved():
    print("256 channels, 14 x 14 places: operations,")
    print("and operations per byte, for a batch of 1 and of 32")
    for (name, *one), (_, *many) in zip(train_counts(256, 14, 1), train_counts(256, 14, 32), strict=True):
        print(f"{name:18}{one[0]:9.1e}{one[1]:8.1f}   {many[0]:9.1e}{many[1]:8.1f}")

# %% [markdown]
# You counted layers of one size. Where are the weights and the work of whole networks? Here are the published ones, for one image.

# %%
print("weights, and their share in linear layers;\nMACs, and their share in convolutions")
print(f"{'':14}{'weights':>10}{'linear':>9}{'MACs':>12}{'conv':>8}")
for name, layers in NETWORKS.items():
    kinds = [[layer for layer in layers() if layer.name.startswith(kind)] for kind in ("conv", "linear")]
    weights, macs = ([total(layers, field) for layers in kinds] for field in ("weights", "macs"))
    print(
        f"{name:14}{sum(weights) / 1e6:8.2f} M{100 * weights[1] / sum(weights):7.0f} %"
        f"{sum(macs) / 1e6:10,.1f} M{100 * macs[0] / sum(macs):6.0f} %"
    )

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The work is in the convolutions. Up to VGG-16 most weights are in the linear layers; the later networks average each map to one number first, so their only
# linear layer is small. Lab {{number model_parallel}} uses this difference.
#
# The linear layer of your table does two operations for each weight that it reads, so for a single sample it does half an operation per byte. A batch shares
# the reading, and only then is the layer worth a GPU. A depthwise convolution also does little for each number, but no batch helps it, because its weights were
# never the problem.
# </details>

# %% [markdown]
# ## What a training reaches
#
# A layer of a transformer has linear layers $h \times 3h$ (queries, keys, values), $h \times h$, $h \times 4h$ and $4h \times h$, and attention; after the last
# layer, each token is compared with all $V$ words of the vocabulary. (The embedding at the beginning only looks words up, without a product.) Forward and
# backward pass together take three times the forward pass.
#
# **Utilization** is the share of the machine's peak that this uses. There are two kinds, and papers mix them (Chowdhery et al. 2022). The *model's* utilization
# counts only what the model needs; the *hardware's* also counts what is recomputed to save memory. A training that recomputes more has a better hardware
# utilization, but is not faster.
#
# For a whole training there is a rule: $6$ operations for each parameter and token, or $8$ if the whole forward pass is recomputed.

# %% [markdown]
# {{exercise utilization}}
#
# Write three small functions: the operations of an iteration layer by layer, the share of the GPUs' peak that it reaches, and the seconds of a whole training by the
# rule of 6 operations for each parameter and token, or 8 if activations are recomputed.
#
# <details><summary>Hint 1: by layers</summary>
#
# Count $24\,b s h^2$ and $4\,b s^2 h$ forward in each layer, and $2\,b s h V$ for the output; then take three times the sum.
# </details>
# <details><summary>Hint 2: the rule</summary>
#
# The GPUs really do `share` of their peak, all together. Divide the operations of the whole training by that.
# </details>


# %%
def transformer_flops(
    layers: int,
    hidden: int,
    sequence: int,
    vocabulary: int,
    batch: int,
) -> float:
    """Return the operations of one iteration, forward and backward, without recomputation.

    >>> transformer_flops(layers=2, hidden=4, sequence=8, vocabulary=10, batch=3)
    79488
    """
    # BEGIN SOLUTION
    tokens = batch * sequence
    layer = 24 * tokens * hidden**2 + 4 * tokens * sequence * hidden
    return 3 * (layers * layer + 2 * tokens * hidden * vocabulary)
    # END SOLUTION


def utilization(
    flops: float,
    again: float,
    seconds: float,
    gpus: int,
    peak: float,
) -> tuple[float, float]:
    """Return the model's and the hardware's utilization of all GPUs.

    flops: what the model needs. again: what is recomputed. peak: of one GPU.

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
    """Return the seconds of a training, if each GPU reaches `share` of its peak.

    >>> train_seconds(1e9, 1e9, gpus=10, peak=1e14, share=0.5)
    12000.0
    """
    # BEGIN SOLUTION
    return (8 if again else 6) * parameters * tokens / (gpus * peak * share)
    # END SOLUTION


# %%
check("machines.utilization")

# %%
with when_solved():
    sizes, scores = (96, 12288, 2048, 51200, 64), 96 * 4 * 64 * 2048**2 * 12288
    model, hardware = utilization(transformer_flops(*sizes), scores, 13.75, 64, 312e12)
    print(f"175 B parameters on 64 A100, 13.75 s: {100 * model:.1f} % and {100 * hardware:.1f} %")
    print("   (printed: 51.4 and 52.8; the paper counts the recomputed scores three times. Try it.)")
    took = train_seconds(37e9, 14.8e12, 2048, 989.4e12, 0.3466) / 3600
    print(
        "DeepSeek-V3, 37 B active parameters, 14.8 T tokens, 2,048 H800. At 34.66 % of the peak in 16 bits the hours agree:"
    )
    print(f"{took / 24:.0f} days, {2048 * took / 1e6:.3f} million GPU hours (printed: 2.664)")

# %% [markdown]
# ## The roof
#
# **The roofline** (Williams, Waterman and Patterson 2009): a layer takes as long as its arithmetic or its memory traffic, whichever takes longer. Its
# operations per byte decide which. Draw operations per second over operations per byte: up to the **ridge** you see a slope, the memory's limit, and from there
# on a flat roof, the peak.
#
# A larger batch moves a layer to the right, because its weights are read once for all samples. But the inputs and outputs grow with the batch. So there is a
# limit, $2 \cdot$ MACs for each byte moved, and some layers never reach the ridge.

# %% [markdown]
# {{exercise roofline}}
#
# Write three functions. `roof` returns one layer's time and limit. `place` returns the place of each layer of a table under the roof. `smallest_batch` returns
# the batch from which arithmetic limits a layer. A layer is what `conv` returns: weights, MACs, and numbers in and out, for one image.
#
# <details><summary>Hint 1: place</summary>
#
# With a batch, a layer does `2 * batch * macs` operations and moves `itemsize * (batch * moved + weights)` bytes. At its roof it does `flops / seconds`
# operations per second.
# </details>
# <details><summary>Hint 2: the batch</summary>
#
# Each sample adds `2 * macs / peak` seconds of arithmetic and `itemsize * moved / bandwidth` of memory traffic; the weights add theirs once. From which batch on has
# arithmetic caught up? If a sample adds more traffic than arithmetic, it never does.
# </details>


# %%
def roof(flops: float, nbytes: float, peak: float, bandwidth: float) -> tuple[float, str]:
    """Return the least seconds for these operations and bytes, and what limits them.

    The limit is "compute" or "memory"; if both take equally long, "compute".

    >>> roof(flops=100.0, nbytes=60.0, peak=100.0, bandwidth=20.0)
    (3.0, 'memory')
    """
    # BEGIN SOLUTION
    arithmetic, memory = flops / peak, nbytes / bandwidth
    return max(arithmetic, memory), "compute" if arithmetic >= memory else "memory"
    # END SOLUTION


def place(
    layers: list[tuple[int, int, int]],
    batch: int,
    peak: float,
    bandwidth: float,
    itemsize: int,
) -> list[tuple[float, float, str]]:
    """Return for each layer: operations per byte, operations per second at its roof, limit.

    >>> place([(10, 100, 15)], batch=10, peak=100.0, bandwidth=10.0, itemsize=4)
    [(3.125, 31.25, 'memory')]
    """
    # BEGIN SOLUTION
    rows = []
    for weights, macs, moved in layers:
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        seconds, limit = roof(flops, nbytes, peak, bandwidth)
        rows.append((flops / nbytes, flops / seconds, limit))
    return rows
    # END SOLUTION


def smallest_batch(
    layer: tuple[int, int, int],
    peak: float,
    bandwidth: float,
    itemsize: int,
) -> float:
    """Return the smallest batch at which arithmetic limits the layer, an int; math.inf if
    no batch is large enough. As in `roof`, equal times count as arithmetic, also for a
    layer without weights.

    >>> smallest_batch((10, 100, 5), peak=16.0, bandwidth=2.0, itemsize=4)
    8
    """
    # BEGIN SOLUTION
    weights, macs, moved = layer
    gain = 2 * macs / peak - itemsize * moved / bandwidth
    late = itemsize * weights / bandwidth
    if gain <= 0:
        return 1 if gain == late == 0 else math.inf
    return max(1, math.ceil(late / gain))
    # END SOLUTION


# %%
check("machines.roofline")

# %% [markdown]
# A fully connected layer with 4,096 inputs and 1,000 outputs, like VGG-16's last layer, runs in 16 bits on a V100 of a DGX-1 (125 TFLOP/s, 900 GB/s; the 112 at
# the top are of the card for a PCIe slot). From which batch on does arithmetic limit it?

# %%
guess("machines.batch", "From which batch on does arithmetic limit the layer?", unit="samples")

# %%
DEVICES = (
    ("P100", "fp32"),
    ("V100 (DGX-1)", "fp32"),
    *((name, "fp16") for name in ("V100 (DGX-1)", "A100 (DGX)", "H100 (DGX)")),
)
KINDS = {
    "3 x 3 convolution": conv(256, 256, 3, 14),
    "1 x 1 convolution": conv(256, 256, 1, 14),
    "depthwise 3 x 3": conv(256, 256, 3, 14, 256),
    "fully connected": linear(1, 4096, 1000),
}

with when_solved():
    guessed("machines.batch")
    reveal("machines.batch", smallest_batch(linear(1, 4096, 1000), 125e12, 900e9, 2))
    print("the smallest batch at which arithmetic limits a layer")
    print(f"{'':18}" + "".join(f"{name.split(' ')[0]:>7}" for name, _ in DEVICES))
    print(f"{'':18}" + "".join(f"{precision:>7}" for _, precision in DEVICES))
    devices = [(*MACHINES[name].device(precision), 2 if precision == "fp16" else 4) for name, precision in DEVICES]
    for kind, layer in KINDS.items():
        print(f"{kind:18}" + "".join(f"{smallest_batch(layer, *device):>7}" for device in devices))

# %%
with when_solved():
    figure, axes = plt.subplots(figsize=(9.6, 3.8), layout="constrained")
    axis = [2 ** (k / 8) for k in range(-24, 89)]  # fine steps: a roof has a sharp corner
    shown = (("P100", "fp32"), ("V100 (DGX-1)", "fp16"), ("H100 (DGX)", "fp16"))
    for (name, precision), color in zip(shown, (style.BLUE, style.ORANGE, style.GREEN), strict=True):
        device, itemsize = MACHINES[name].device(precision), 2 if precision == "fp16" else 4
        heights = [min(device.peak, intensity * device.bandwidth) / 1e12 for intensity in axis]
        axes.loglog(axis, heights, color=color, label=f"{name}, {precision}")
        for (intensity, rate, _), mark in zip(place(list(KINDS.values()), 32, *device, itemsize), "os^D", strict=True):
            axes.plot(intensity, rate / 1e12, mark, color=color)
    for kind, mark in zip(KINDS, "os^D", strict=True):
        axes.plot([], [], mark, color=style.GREY, label=f"{kind}, batch 32")
    axes.set(xlabel="operations per byte", ylabel="TFLOP/s at most", title="Four layers under three roofs")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    plt.show()

# %%
with when_solved():
    print("ResNet-50 forward, batch 32, each layer at its roof;")
    print("last, the share of the time in layers that memory limits")
    print(f"{'':18}{'TFLOP/s':>8}{'GB/s':>7}{'ridge':>7}{'ms':>8}{'share':>7}")
    layers = resnet50()
    rows = work([(layer.weights, layer.macs, layer.inputs + layer.outputs) for layer in layers], 32)
    for name, precision in DEVICES:
        device = MACHINES[name].device(precision)
        roofs = [roof(forward, nbytes / (2 if precision == "fp16" else 1), *device) for forward, _, nbytes in rows]
        seconds = sum(least for least, _ in roofs)
        held = sum(least for least, limit in roofs if limit == "memory") / seconds
        chip = f"{device.peak / 1e12:8.1f}{device.bandwidth / 1e9:7.0f}{device.ridge:7.0f}"
        print(f"{name:14}{precision}{chip}{1e3 * seconds:8.1f}{100 * held:5.0f} %")
    print(
        f"ANNA (1991): 1,000 characters/s of 130,000 connections each: {100 * 1000 * 2 * 130_000 / 4e9:.1f} % of its 4 GOP/s"
    )

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - A depthwise convolution does so few operations for each number that it reaches no ridge at any batch. With tensor cores a 1 x 1 convolution of 256 channels
#   does not reach the ridge either; in 32 bits one image is enough.
# - With tensor cores the fully connected layer needs a batch of hundreds: for a single sample it does one operation for each byte of its weights. In 32 bits
#   the peak is so much lower that some thirty samples are enough.
# - In 32 bits almost every layer is limited by arithmetic. Tensor cores moved the ridge ten times to the right, but memory did not keep up: on an H100 three
#   quarters of the time go to layers that wait for memory. This is why we use larger batches, fused layers, and numbers of 8 bits. ANNA, a chip of 1991 (Boser
#   et al.), used 6.5 % of its peak with a network like LeNet-5. DianNao (Chen et al. 2014) took the opposite approach: few multipliers, with buffers next to
#   them so that memory keeps up. It is the same roof, seen from the other end.
# </details>

# %% [markdown]
# Now move the **batch** yourself, and change the **chip**. Which layers climb with the batch, and which one never does? Which of them fill a V100 but not an H100?

# %%
under_the_roof.explorable()

# %% [markdown]
# ## 22 hours, not 6.7
#
# The lecture's example: ResNet-50 takes 3.9 G MACs forward for an image, so 11.7 G MACs forward and backward. An epoch has 1.28 million images, a training 90
# epochs, and a V100 does 112 TFLOP/s with tensor cores. At the peak that takes 6.7 hours. MXNet, with batches of 256, reached 1,457 images per second: 22
# hours, 30 % of the peak.
#
# No table of MACs shows a part of the difference. Between two convolutions there are a **batch norm** and an **activation**, and sometimes **pooling**. The
# lecture gives their work as $O(NCHW)$: they have no products, but read and write every number.
#
# | layer | weights | numbers read and written for an image |
# |---|---|---|
# | activation | 0 | read once, written once |
# | pooling, adjacent windows of $k \times k$ | 0 | read once; one of $k^2$ is written |
# | batch norm | a scale and a shift for each channel | read twice (for mean and variance, then to normalize), written once |
#
# Backward, a layer takes twice as many operations and bytes as forward. The first layer takes only as many as forward, since its input needs no gradient.

# %% [markdown]
# {{exercise hours}}
#
# Write the three rows in the form that `conv` returns: weights, MACs, numbers moved, for one image of `channels` maps of size x size. Then compute the hours of
# a training in three ways: with every layer at the peak, with each layer at its own roof, and at a measured rate. A training has `images * epochs / batch`
# steps (do not round).
#
# <details><summary>Hint 1: rows</summary>
#
# A layer reads `channels * size**2` numbers. Pooling writes `channels * (size // window)**2`.
# </details>
# <details><summary>Hint 2: three passes</summary>
#
# The first layer of the list counts twice, every other one three times. Use `roof` for each layer.
# </details>


# %%
def activation(channels: int, size: int) -> tuple[int, int, int]:
    """Return weights, MACs, numbers in and out of an activation.

    >>> activation(channels=2, size=10)
    (0, 0, 400)
    """
    # BEGIN SOLUTION
    return 0, 0, 2 * channels * size**2
    # END SOLUTION


def pooling(channels: int, size: int, window: int) -> tuple[int, int, int]:
    """Return weights, MACs, numbers in and out of pooling with adjacent windows of window x
    window; size is a multiple of window.

    >>> pooling(channels=2, size=10, window=2)
    (0, 0, 250)
    """
    # BEGIN SOLUTION
    return 0, 0, channels * (size**2 + (size // window) ** 2)
    # END SOLUTION


def batch_norm(channels: int, size: int) -> tuple[int, int, int]:
    """Return weights, MACs, numbers in and out of a batch norm in training.

    >>> batch_norm(channels=2, size=10)
    (4, 0, 600)
    """
    # BEGIN SOLUTION
    return 2 * channels, 0, 3 * channels * size**2
    # END SOLUTION


def hours(
    layers: list[tuple[int, int, int]],
    batch: int,
    images: int,
    epochs: int,
    peak: float,
    bandwidth: float,
    rate: float,
    itemsize: int = 2,
) -> dict[str, float]:
    """Return the hours of a training: "arithmetic" at the peak, "roof" with each layer at
    its roof, "measured" at `rate` images per second.

    >>> hours([(0, 100, 0), (0, 100, 0)], 1, 3600, 1, peak=100.0, bandwidth=1.0, rate=0.05)
    {'arithmetic': 10.0, 'roof': 10.0, 'measured': 20.0}
    """
    # BEGIN SOLUTION
    steps, arithmetic, at_roof = images * epochs / batch, 0.0, 0.0
    for i, (weights, macs, moved) in enumerate(layers):
        passes = 3 if i else 2
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        arithmetic += passes * flops / peak
        at_roof += passes * roof(flops, nbytes, peak, bandwidth)[0]
    seconds = {"arithmetic": steps * arithmetic, "roof": steps * at_roof}
    seconds["measured"] = images * epochs / rate
    return {kind: value / 3600 for kind, value in seconds.items()}
    # END SOLUTION


# %%
check("machines.hours")

# %% [markdown]
# How many hours does ResNet-50 take on the V100 if each convolution, each batch norm and each activation runs at its own roof?

# %%
guess("machines.hours", "How many hours do 90 epochs take with every layer at its roof?", unit="hours")

# %%
with when_solved():
    guessed("machines.hours")
    convolutions = [(layer.weights, layer.macs, layer.inputs + layer.outputs) for layer in resnet50()]
    between = []  # a batch norm and an activation after each convolution
    for layer in resnet50()[:-1]:
        between += [
            batch_norm(layer.outputs, 1),
            activation(layer.outputs, 1),
        ]  # the number of numbers counts, not the shape
    print("ResNet-50, 90 epochs in 16 bits, batch 256:")
    print("hours with 112 TFLOP/s and 900 GB/s")
    print(f"{'':26}{'arithmetic':>10}{'roof':>8}{'measured':>10}")
    for what, layers in (("only products", convolutions), ("with norms and activations", convolutions + between)):
        found = hours(layers, 256, 1_280_000, 90, 112e12, 900e9, 1457.0)
        print(f"{what:26}{found['arithmetic']:10.1f}{found['roof']:8.1f}{found['measured']:10.1f}")
    reveal("machines.hours", found["roof"])

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - The products take 6.5 hours at the peak and 7.8 at their roofs. (Our table of ResNet-50 has a little less than 3.9 G MACs.) Batch norms and activations,
#   which no table of MACs lists, add 11.3 hours: all of them wait for memory. Together that is 19.1 of the 22 hours.
# - No roof explains the rest: tiles that do not fill a processor, kernels that start one after the other, additions of the shortcuts, the input, the optimizer.
# - That is why frameworks fuse a batch norm and an activation with the convolution before them, so that fewer numbers go through memory. And that is why you
#   need a profile, not a data sheet, to decide where to begin.
# </details>

# %% [markdown]
# ## A profile, not a data sheet
#
# `torch.profiler` writes down when each operator and each kernel runs, in a format that Chrome (`chrome://tracing`) and Perfetto show as a timeline: a list of events.
# An event with `"ph": "X"` has a begin `"ts"` and a length `"dur"`, in µs; `"cat"` is its kind, and `"tid"` its row, here a thread of the host or a stream of the GPU.
#
# | `"cat"` | `"name"` | |
# |---|---|---|
# | `kernel` | `ampere_sgemm_128x64_tn`, ... | the GPU computes |
# | `kernel` | begins with `nccl` | the GPU only communicates |
# | `gpu_memcpy` | `Memcpy HtoD` | numbers are copied to the GPU |
# | `user_annotation` | begins with `enumerate(DataLoader)` | the host waits for the next batch |
# | `cuda_runtime` | `cudaStreamSynchronize`, `cudaDeviceSynchronize` | the host waits for the GPU, for example in `loss.item()`, and starts no more kernels |
#
# A **stall** is a time in which the GPU does not compute, between its first kernel and its last one. Most events are harmless: an all-reduce or a slow batch behind a
# running kernel costs nothing. So begin with the stalls, and ask for the cause of the longest ones only.
#
# A profile of one process does not show *whom* it waits for. Horovod's timeline does (`horovodrun --timeline-filename`): each tensor is a process of the trace, with
# these events for each step, among others:
#
#     {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "pid": 5, "ts": 1000}   the first rank has the gradient of tensor 5
#     {"ph": "X", "name": "2", "pid": 5, "ts": 1000, "dur": 0}           rank 2 has it
#     {"ph": "X", "name": "0", "pid": 5, "ts": 1090, "dur": 0}           rank 0 has it
#     {"ph": "E", "pid": 5, "ts": 1090}                                  all ranks have it
#     {"ph": "B", "name": "ALLREDUCE", "pid": 5, "ts": 1092}             (until the next "E" of this tensor)

# %% [markdown]
# {{exercise profile}}
#
# Write two functions. `stalls` finds the three longest stalls of a GPU, and what covers most of each. `waits` adds up, from Horovod's timeline, how long each
# rank has waited for which other rank.
#
# <details><summary>Hint 1: the gaps</summary>
#
# Sort the computing kernels by their begin, and remember the latest end so far. A kernel that begins later than that ends a stall.
# </details>
# <details><summary>Hint 2: the cause</summary>
#
# `min(end, event_end) - max(begin, event_begin)` is the part of an event inside a stall, if it is positive. Add the parts of each cause.
# </details>
# <details><summary>Hint 3: ranks</summary>
#
# Collect the requests of each tensor, `event["pid"]`, until its NEGOTIATE_ALLREDUCE ends with an `"E"`. The last request is the rank that the others have waited for.
# </details>


# %%
def stalls(events: list[dict]) -> list[tuple[str, float, float]]:
    """Return (cause, begin, length) of the three longest stalls, the longest first; fewer
    if the trace has fewer.

    events: in any order; some have no "dur" and no "cat". Kernels overlap on several
    streams. The cause is what covers most of the stall's time: "input", "communication" or
    "host" (a synchronization); "other" if none of these covers any of it. Events of one
    cause do not overlap each other.

    >>> work = {"ph": "X", "cat": "kernel", "name": "sgemm", "tid": 7, "dur": 10}
    >>> batch = {"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#1"}
    >>> stalls([{**work, "ts": 0}, {**work, "ts": 16}, {**batch, "ts": 5, "dur": 9}])
    [('input', 10, 6)]
    """
    # BEGIN SOLUTION
    times = {"compute": [], "input": [], "communication": [], "host": []}
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind == "kernel":
            row = "communication" if name.startswith("nccl") else "compute"
        elif name.startswith("enumerate(DataLoader)"):
            row = "input"
        elif name in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            row = "host"
        else:
            continue
        times[row].append((event["ts"], event["ts"] + event["dur"]))
    compute, found = sorted(times.pop("compute")), []
    latest = compute[0][1]
    for begin, end in compute:
        if begin > latest:
            shares = {
                row: sum(max(0, min(begin, b) - max(latest, a)) for a, b in parts) for row, parts in times.items()
            }
            cause = max(shares, key=shares.get) if any(shares.values()) else "other"
            found.append((cause, latest, begin - latest))
        latest = max(latest, end)
    return sorted(found, key=lambda stall: -stall[2])[:3]
    # END SOLUTION


def waits(events: list[dict]) -> dict[tuple[int, int], float]:
    """Return by (rank, awaited rank) the µs that the rank has waited, over all tensors and
    steps of Horovod's timeline.

    A rank waits for the last rank of each request, from its own request to that rank's.
    Pairs that never wait are left out. events: in the order of the file, the tensors mixed;
    no two ranks request a tensor at the same time.

    >>> tick = {"ph": "X", "pid": 0, "dur": 0}
    >>> begin = {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "pid": 0, "ts": 5}
    >>> ticks = [{**tick, "name": "1", "ts": 5}, {**tick, "name": "0", "ts": 9}]
    >>> waits([begin, *ticks, {"ph": "E", "pid": 0, "ts": 9}])
    {(1, 0): 4}
    """
    # BEGIN SOLUTION
    requests, found = {}, {}
    for event in events:
        tensor = event["pid"]
        if event["ph"] == "X":
            requests.setdefault(tensor, []).append((event["ts"], int(event["name"])))
        elif event["ph"] == "E" and tensor in requests:
            ticks = requests.pop(tensor)
            end, last = max(ticks)
            for tick, rank in ticks:
                if rank != last:
                    found[rank, last] = found.get((rank, last), 0) + end - tick
    return found
    # END SOLUTION


# %%
check("machines.profile")

# %% [markdown]
# First a made-up trace, with a new seed if you like. Then your own training, on this machine: LeNet-5's input through a `DataLoader` with one slow picture. There is no
# GPU, so the operators of the main thread take its place, and sleeping takes the place of a slow disk, of another rank, and of reading the loss. What share of the time
# does this training compute?

# %%
guess("machines.computes", "In what share of its time does this training compute?", unit="%")

# %%
ROWS = {"computes": style.BLUE, "input": style.ORANGE, "communication": style.GREEN, "host": style.PURPLE}


def row_of(event: dict) -> str | None:
    """Return the row of an event in the picture, if it has one."""
    if event.get("cat") == "kernel":
        return "communication" if event["name"].startswith("nccl") else "computes"
    if event["name"].startswith("enumerate(DataLoader)"):
        return "input"
    return "host" if event["name"] in ("cudaStreamSynchronize", "cudaDeviceSynchronize") else None


def timeline(events: list[dict], title: str) -> None:
    """Draw the events in rows, with the three longest stalls shaded and numbered."""
    axes = plt.subplots(figsize=(9.6, 2.6), layout="constrained")[1]
    for height, (row, color) in enumerate(ROWS.items()):
        parts = [(event["ts"] / 1e3, event["dur"] / 1e3) for event in events if row_of(event) == row]
        axes.broken_barh(parts, (-height - 0.35, 0.7), color=color)
    for number, (_, begin, length) in enumerate(stalls(events), start=1):
        axes.axvspan(begin / 1e3, (begin + length) / 1e3, color=style.GREY, alpha=0.25, lw=0, zorder=0)
        axes.text((begin + length / 2) / 1e3, 0.6, str(number), ha="center", va="bottom")
    axes.set(xlabel="ms", title=title, ylim=(-3.6, 1.1))
    axes.set_yticks([-height for height in range(len(ROWS))], list(ROWS))
    plt.show()


class Pictures(Dataset):
    """64 random pictures; picture 37 is on a slow disk."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        if i == 37:
            time.sleep(0.15)
        return torch.full((1, 28, 28), i / 64), i % 10


def training() -> None:
    """Train LeNet-5 for eight steps."""
    torch.manual_seed(0)
    model, loader = lenet5(), DataLoader(Pictures(), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        if step == 5:
            with record_function("all-reduce"):
                time.sleep(0.1)  # another rank is late
        optimizer.step()
        if step == 2:
            with record_function("synchronize"):
                time.sleep(0.2)  # print(loss.item())


with when_solved():
    guessed("machines.computes")
    timeline(device_trace(torch.Generator().manual_seed(1)), "A made-up trace, its longest stalls numbered")
    training()  # once without the profiler: the first step prepares kernels
    measured = profiled(training)
    timeline(measured, "LeNet-5 on this machine, its longest stalls numbered")
    for cause, begin, length in stalls(measured):
        print(f"{cause:14} {length / 1e3:6.1f} ms, from {begin / 1e3:.1f} ms on")
    line = torch.zeros(int(max(event["ts"] + event["dur"] for event in measured)) + 1, dtype=torch.bool)
    for event in measured:
        if row_of(event) == "computes":
            line[int(event["ts"]) : int(event["ts"] + event["dur"])] = True
    reveal("machines.computes", 100 * line.float().mean().item(), measured=True)

# %%
with when_solved():
    ranks = 4
    timeline_of_ranks = horovod_timeline(random_ready(torch.Generator().manual_seed(3), ranks, tensors=5, steps=10))
    waited = waits(timeline_of_ranks)
    print("µs that a rank (row) waits for another (column), 10 steps of 5 tensors")
    print(f"{'':8}" + "".join(f"rank {rank:<5}" for rank in range(ranks)))
    for rank in range(ranks):
        print(f"rank {rank}  " + "".join(f"{waited.get((rank, other), 0):>6}    " for other in range(ranks)))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - The three longest stalls are the three that were put there: a synchronization, a batch, an all-reduce. You know their causes without a look at the code. (On a busy
#   machine another program may be the cause of a longer one.) The short ones between two operators are Python's own time.
# - In the made-up trace, the longest events are no stalls at all: they run while the GPU computes.
# - One rank is slow, so all others wait for it, and it seldom waits itself. In its own profile it has no stall: the slow rank looks busy, and the fast ones
#   look bad.
# </details>
#
# `hpcdl train` records such a timeline, too. In a terminal (some seconds; four simulated ranks, in the time that A100s would take):
#
# ```sh
# hpcdl train --model gpt --mesh pipeline=4 --microbatches 8 --batch 64 --steps 2 --simulate 4 --machine "A100 (DGX)" --log run --profile
# hpcdl trace run --out trace.json
# ```
#
# Open `trace.json` at <https://ui.perfetto.dev>. Which stage waits first, and which last? `hpcdl trace` also prints the share of a step that ranks wait. Take
# `--microbatches 16`, and look again.

# %% [markdown]
# ## Growth, and zeros that do not help
#
# The lecture on distributed deep learning quotes OpenAI (Amodei and Hernandez 2018): from 2012 to 2018 the operations of the largest trainings doubled every
# 3.4 months; Sevilla et al. 2022 count 6 months for 2010 to 2022. GPT-1 had 0.117 billion parameters in 2018, GPT-3 175 in 2020, PaLM 540 in 2022. How much of this growth comes from the chips? NVIDIA showed the P100 in April 2016 and the
# H100 in March 2022. Take 32 bits on the P100, which has no tensor cores, and 16 bits on the H100.

# %%
months, gain = 71, MACHINES["H100 (DGX)"].peaks["fp16"] / MACHINES["P100"].peaks["fp32"]
print(
    f"a chip: {gain:.0f} times the operations after {months} months, twice as many every {months / math.log2(gain):.0f}"
)
for doubling in (6, 3.4):
    wanted = 2 ** (months / doubling)
    print(
        f"doubled every {doubling} months: {wanted:,.0f} times, so {wanted / gain:,.0f} times as many chips, or as long"
    )
gpt3, fugaku = 6 * 175e9 * 300e9, 158_976 * 13.5e12  # your rule for 300 billion tokens; a node's peak in 16 bits
print(
    f"GPT-3: {gpt3 / (86400 * 1e15):,.0f} petaflop/s-days: {gpt3 / (86400 * 112e12 * 365):,.0f} years of a V100's peak, "
    f"{gpt3 / (86400 * fugaku):.1f} days of Fugaku's ({fugaku:.2e} FLOP/s; number 1 in 2020 and 2021)"
)

# %% [markdown]
# The rest comes from more chips at once, which is the topic of this course. Better chips matter, too. Le et al. 2012 ran a network of $10^9$ weights on 1,000
# machines, with DistBelief. Coates et al. 2013 trained it on three machines with four GPUs each: parallel inside a GPU, between the GPUs of a machine, and
# between machines. And chips can be made for one purpose. The first TPU was 15 to 30 times as fast as the GPU (a K80) and the processor of its time, with 30 to
# 80 times the operations for each watt (Jouppi et al. 2017). In DianNao, numbers pass through at most three stages: multiply, add up, apply the activation;
# pooling does not need the first. An FPGA, whose gates are rewired for each network, is fast at its
# convolutions, but even harder to program than a GPU.
#
# Can we do *fewer* operations instead of using more chips? You can set most weights of a trained network to zero, and it still works nearly as well. Here is a
# matrix of $1024 \times 1024$ weights times 64 columns, once dense and once sparse. The sparse one stores only the nonzero weights, with their positions.

# %%
guess("machines.zeros", "What share of the weights must be zero before the sparse product is faster?", unit="%")

# %%
guessed("machines.zeros")
warnings.filterwarnings("ignore", "Sparse CSR tensor support")  # PyTorch calls it beta


def milliseconds(product):
    times = []
    for _ in range(16):
        begin = time.perf_counter()
        product()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def race(percents):
    """Return the first of `percents` of zeros at which the sparse product is faster; None if it never is."""
    generator = torch.Generator().manual_seed(0)
    W, X = torch.randn(1024, 1024, generator=generator), torch.randn(1024, 64, generator=generator)
    chance = torch.rand(W.shape, generator=generator)
    dense, first = milliseconds(lambda: W @ X), None
    print(f"dense: {dense:.2f} ms")
    print(f"{'zeros':>5}{'ms':>8}{'fewer products':>17}{'as fast':>13}")
    for percent in percents:
        sparse = (W * (chance >= percent / 100)).to_sparse_csr()
        taken = milliseconds(lambda sparse=sparse: sparse @ X)
        first = first or (percent if taken < dense else None)
        fewer = 100 / (100 - percent)
        print(f"{percent:3} %{taken:8.2f}{fewer:11.1f} times{dense / taken:7.1f} times")
    return first


reveal("machines.zeros", race((50, 60, 70, 75, 80, 85, 90, 95, 98, 99)) or 100)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# With half of the products left out, it takes longer. For each remaining weight you must read its position, and fetch a row of $X$ from wherever it is, while
# the dense product reads memory in order and keeps blocks in the cache. In our measurements about 80 % had to be zero. With 99 %, that is, with a hundred times
# fewer products, it was 10 to 17 times as fast. A GPU needs even more zeros, because tensor cores multiply whole tiles. So chips since the A100 support one
# pattern, two zeros in every four, at twice the speed.
# </details>

# %% [markdown]
# ## For those who want more
#
# This challenge has no points and no check, but a proof to demand of yourself.
#
# Measure this machine's own roof: the rate of a large matrix product, and of a copy of a large tensor. Then run a convolution of lab 05, a linear layer with a
# batch of 1 and of 256, and an activation. *Proof:* each of them stays below your roof, and the linear layer crosses the ridge at the batch that
# `smallest_batch` predicts.

# %% [markdown]
# ## Further reading
#
# - S. Williams, A. Waterman, D. Patterson 2009, "Roofline: An insightful visual performance model for multicore architectures".
# - T. Ben-Nun, T. Hoefler 2019, "Demystifying parallel and distributed deep learning: An in-depth concurrency analysis": the work of each layer, forward and backward.
# - A. Chowdhery et al. 2022, "PaLM": model and hardware utilization; V. Korthikanti et al. 2022.
# - D. Amodei, D. Hernandez 2018, "AI and compute"; J. Sevilla et al. 2022, "Compute trends across three eras of machine learning".
# - A. Coates et al. 2013, "Deep learning with COTS HPC systems"; Q. Le et al. 2012, "Building high-level features using large scale unsupervised learning".
# - T. Brown et al. 2020, "Language models are few-shot learners" (GPT-3: 3,640 petaflop/s-days); N. Jouppi et al. 2017, "In-datacenter performance analysis of a
#   tensor processing unit".
# - B. Boser et al. 1991, "An analog neural network processor with programmable topology" (ANNA); T. Chen et al. 2014, "DianNao".
