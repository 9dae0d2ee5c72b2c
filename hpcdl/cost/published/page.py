"""docs/published.md: the table, what it assumes, and what it does not reach."""

from hpcdl.cost.machines import RDMA, TCP
from hpcdl.cost.published import Row, rows
from hpcdl.cost.published.data_parallel import IMAGES_PER_SECOND, goyal, horovod
from hpcdl.cost.published.pipelines import VGG16_MS
from hpcdl.cost.published.row import SPREAD, USABLE
from hpcdl.cost.published.transformers import megatron
from hpcdl.nn.networks import total, vgg16

ASSUMPTIONS = f"""\
- A collective reaches **{100 * USABLE:.0f} % of the line rate** of a link. This is what MG-WFBP's fitted beta reaches
  of its 56 Gb/s InfiniBand with 8 workers (with 16 workers: 66 %). Memory-bound work is assumed to reach as much of
  the memory's rate.
- A message costs **{RDMA * 1e6:.0f} µs** over RDMA and NVLink and **{TCP * 1e6:.0f} µs** over TCP: MG-WFBP's fitted
  alpha of the same InfiniBand, and of 10 Gb/s Ethernet, for each step of a ring of 8. (The beta fitted for that
  Ethernet is less than 10 Gb/s allow, so it is not used.)
- The backward pass takes **twice the forward pass** (the lecture's rule), each layer its share of the MACs.
- **The computing times of ranks deviate by {100 * SPREAD:.0f} %**, and synchronous ranks wait for the slowest. This is
  the one number chosen to agree, once, for Goyal and Horovod together. It stands for all that is not communication,
  such as reading data. Megatron's GPUs are alike and read next to nothing: no spread there.
- Goyal: 8 GPUs to a server (NVLink), 50 Gb/s Ethernet between servers, halving and doubling, one message per layer.
  The sums within a server hide behind those between servers, as the paper says of its implementation.
- Horovod: 4 GPUs to a server, 25 Gb/s, one ring in which the links between servers set the pace, tensor fusion up to
  64 MB, batch 64. Images per second on one P100 are from TensorFlow's benchmark page in its last version (Inception V3
  142, VGG-16 154) and, for ResNet-101, from Horovod's (1,656.82 on 16 GPUs).
- Megatron: all matrix products run at one rate, set so that the smallest model alone reaches the paper's 39 TFLOP/s.
  Normalizations, dropouts and residuals are repeated on each rank at the memory's speed. NVSwitch has 150 GB/s each
  way (300 both ways), a server of 16 GPUs 100 GB/s to the others. Batch 8 per model; layers are recomputed; the
  16-bit gradients are summed after the backward pass, first within the servers, then between them.
- Lecture's case study: 64 images per GPU at 218 images/s, 16-bit gradients, and as for Horovod.
- Poseidon: 32 images per node, the time of one node as published, every node a server, and 40 Gb/s Ethernet assumed
  (its documents name no network). Wait-free backpropagation, one message per layer; Caffe sends all after the
  backward pass.
- Large batch: 32 images per core, 90 epochs, rings over a 2-D torus with the links of table 2 of ring attention. The
  time of a core alone is fitted to the row of 32 cores.
- PipeDream: times of the layers of VGG-16 as its authors publish them for one GPU; a stage on r machines takes an r-th
  of its time, messages hide behind computing, and synchronous SGD has 25 Gb/s Ethernet (assumed).
- Zero Bubble: the printed times of F, B, W and a message, equal on all stages; a stage computes while messages travel.
- Megatron 2021 and Korthikanti: as Megatron, on servers of 8 A100 with eight 200 Gb/s InfiniBand, microbatches of one
  sequence, 1F1B without interleaving, equal stages, and 28 bytes moved per parameter for Adam's update. What matrix
  products reach of 312 TFLOP/s is fitted once for each paper: to the 7.5 B row, and to the 175 B row with everything
  recomputed. Megatron 2021 recomputes everything and sums gradients after the backward pass.
- Ring attention, DeepSeek-V3, the utilizations, 175 B parameters in 34 days, and Micikevicius's 2048 (two over FP16's
  gap at 1): no assumption; they are arithmetic.
- GPipe: equal stages, no time for messages, every microbatch equally efficient.
- ZeRO: no assumption; it is arithmetic."""


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [["source", "figure", "published", "predicted", "error", "limit"], ["---"] * 6]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines + [row.cells() for row in rows])


def page() -> str:
    """docs/published.md."""
    plain, double = (
        ", ".join(f"{row.predicted:.0f}" for row in (goyal(spread)[0], *horovod(spread))) for spread in (0, 2 * SPREAD)
    )
    slow, ideal = (max(abs(row.error) for row in megatron(usable)) for usable in (0.66, 1.0))
    other = horovod(images_per_second=IMAGES_PER_SECOND | {"VGG-16": 132})[2].predicted
    iteration = sum(map(sum, VGG16_MS)) / 1e3
    exposed = (4 / 1.47 - 1) * iteration
    volume = 4 * total(vgg16(), "weights") / 1e6
    gigabits = 2 * 3 / 4 * volume * 8 / 1e3 / exposed
    return f"""\
# Published figures, and what the models say

Written by `python -m hpcdl.cost.published > docs/published.md`; a test keeps it so, and every error within its limit.
"Not reached" marks figures that the stated assumptions do not give; the reasons are below. "Fitted" marks figures that
fixed an assumption: they agree by construction.

{table(rows())}

## Assumptions

{ASSUMPTIONS}

## How much hangs on them

- Without spread, Goyal, Inception V3, ResNet-101 and VGG-16 would come out at {plain} %, with twice the
  spread at {double} %. Communication explains most of what VGG-16 loses, and next to nothing of what the others lose.
- Another version of TensorFlow's page has 132 images/s for VGG-16. With it the prediction is {other:.0f} %, outside
  the limit: the slower the GPU, the better its network looks.
- Megatron's largest error is {slow:.0f} points if links and memory reach 66 % of their rate (MG-WFBP's fit for 16
  workers), and {ideal:.0f} if they reach all of it.

## Not reached

- **GPipe at M = 1 and M = 4.** K M / (M + K - 1) is the most that M equal microbatches allow, and the published
  speeds are above it. They are relative to K = 2, M = 1, and the batch was adjusted to fit the memory, so that cells
  differ in more than their schedule. The schedule cannot say how much that is worth.
- **GPipe's AmoebaNet.** Its layers differ, so that its stages cannot be equal, and the longest sets the pace: 3.48 on 8
  accelerators, where equal stages would reach 6.56. The paper does not print the layers' times.
- **Goyal's 0.256 s.** A forward and a backward pass of 60 and 120 ms, at the pace of the slowest of 256, leave a fifth
  unexplained: updating weights, reading data and sums within the server are not in the model. The efficiency, a ratio
  of two iterations, suffers less.
- **PipeDream's synchronous SGD.** With wait-free backpropagation nearly all messages hide: most of the weights are in
  the linear layers, and their gradients come first. A speed-up of 1.47 leaves {exposed:.1f} s of each iteration to
  messages, as if the {volume:.0f} MB went at {gigabits:.0f} Gb/s with nothing hidden. The pipeline 2-1-1 is bound by
  computing in our model; what its replicated stage loses in summing gradients is not in it.
- **Caffe with parameter servers.** 27 s is what evenly spread servers would take, on two nodes or 32. The published
  times grow with the nodes, and are 34.5 s on one already: what is slow there is not the network alone.
- **Megatron's 1.7 B model in 2021.** It is the only one whose layers are not cut, and its matrices are the smallest.
  The fitted rate is that of larger ones, so that without messages our GPU reaches more than with them; the published
  one, a little less.
- **Korthikanti's hardware utilization** (within a point, but below). The printed 52.8 and 57.0 % come out if the
  recomputed attention counts 12 b s^2 h for each layer, as much as its forward and backward pass; the operations of
  computing it once more are 4 b s^2 h.
- **The last of large batch.** 5 minutes are printed without decimals, and starting, evaluation and reading data weigh
  most in the shortest run.
- **The lecture's 99.2 %.** 218 images/s on each of 1,024 GPUs at 99.2 % are 90 epochs in 8.7 minutes: the slide prints
  7.8, the same digits turned around. Our ranks spread by 5 %, which alone costs more than 0.8 %.
- **The lecture's 2,048 GPUs.** 8.7 / 6.6 minutes are 1.32 times the speed of 1,024. The published batch ends at 65,536,
  which leaves 32 images for each GPU; nothing in alpha and beta costs the rest, and the slide does not say what does.

## A bound

Overlap saves at most the communication c, and at most the backward pass b: min(c, b) / (f + b + c) of an iteration.
That is largest for c = b, and then 40 % if b = 2 f. The published savings of PyTorch's DDP (Li et al. 2020) are 38.0 %
and 35.2 % with NCCL, 26.8 % and 21.5 % with gloo.
"""
