"""docs/published.md: the table, its assumptions, and what the model does not reach."""

import inspect
import textwrap
from collections.abc import Callable
from math import exp, sqrt
from statistics import fmean, median
from typing import Any

from hpcdl.cost.machines import (
    A100_MATRIX,
    A100_SUPERPOD,
    H100_MATRIX,
    K80_VECTOR,
    MEMORY,
    RDMA,
    TCP,
    V100_MATRIX,
    VECTOR,
)
from hpcdl.cost.published import Row, rows
from hpcdl.cost.published.causes import cause
from hpcdl.cost.published.data_parallel import IMAGES_PER_SECOND, goyal, horovod
from hpcdl.cost.published.row import SPREAD, USABLE
from hpcdl.cost.reached import ASKED, KINDS, OTHER_DEVICE, Prediction, reaches
from hpcdl.cost.topology import COPYING, STAGING
from hpcdl.cost.training import ADAM_BYTES, Layout, predict
from hpcdl.cost.work import Transformer

ASSUMPTIONS = f"""\
- A collective reaches **{100 * USABLE:.0f} % of the line rate** of a link. This is what MG-WFBP's fitted beta reaches
  of its 56 Gb/s InfiniBand with 8 workers (with 16 workers: 66 %).
- A message costs **{RDMA * 1e6:.0f} µs** over RDMA and NVLink and **{TCP * 1e6:.0f} µs** over TCP: MG-WFBP's fitted
  alpha of the same InfiniBand, and of 10 Gb/s Ethernet, for each step of a ring of 8. (The beta fitted for that
  Ethernet is less than 10 Gb/s allow, so it is not used.)
- Where computing was measured, the backward pass takes **twice the forward pass** (the lecture's rule), each layer its
  share of the MACs.
- **The computing times of ranks deviate by {100 * SPREAD:.0f} %**, and synchronous ranks wait for the slowest. This is
  the one number chosen to agree, once, for Goyal and Horovod together. It stands for all that is not communication,
  such as reading data. Equal GPUs of five large machines vary by 8 % on average, at most by 22 % (Sinha et al. 2022,
  "Not all GPUs are created equal"), which is of this size. Megatron's GPUs
  are alike and read next to nothing: no spread there.
- TCP as libraries use it (`topology.tcp`): a host takes {COPYING["nccl"] * 1e9:.2f} ns for each byte of one NCCL
  connection in addition to the wire, {COPYING["gloo"] * 1e9:.2f} ns of gloo's; connections copy in parallel.
- Goyal: 8 GPUs to a server (NVLink), 50 Gb/s Ethernet between servers, halving and doubling, one message per layer.
  The sums within a server hide behind those between servers, as the paper says of its implementation.
- Horovod: 4 GPUs to a server, 25 Gb/s, one ring in which the links between servers set the pace, tensor fusion up to
  64 MB, batch 64. Images per second on one P100 are from TensorFlow's benchmark page in its last version (Inception V3
  142, VGG-16 154) and, for ResNet-101, from Horovod's (1,656.82 on 16 GPUs).
- Lecture's case study: 64 images per GPU at 218 images/s, 16-bit gradients, and as for Horovod.
- Poseidon: 32 images per node, the time of one node as published, every node a server, and 40 Gb/s Ethernet assumed
  (its documents name no network). Wait-free backpropagation, one message per layer; linear layers send factors, and
  every node computes the others' products at its own rate.
- Parameter servers: a worker takes {STAGING * 1e9:.2f} ns for each byte besides the link, from Caffe's time on one
  node. Caffe holds whole layers on a server, and the fullest sets the pace. Nothing is sent before the backward pass
  ends.
- Large batch: 32 images per core, 90 epochs, rings over a 2-D torus with the links of table 2 of ring attention. The
  time of a core alone is fitted to the row of 32 cores.
- PipeDream: times of the layers of VGG-16 as its authors publish them for one GPU; a stage on r machines takes an r-th
  of its time, and messages hide behind computing. Synchronous SGD has parameter servers and 25 Gb/s Ethernet (assumed).
- Zero Bubble: the printed times of F, B, W and a message, equal on all stages; a stage computes while messages travel.
- **Transformers and images per second come from sizes alone** (`hpcdl.cost.blocks`, `hpcdl.cost.kernels`). Matrix
  products go by tiles and waves, everything else by bytes.
  Large products reach {100 * A100_MATRIX:.0f} % of an A100's peak, {100 * V100_MATRIX:.0f} % of a V100's,
  {100 * H100_MATRIX:.0f} % of an H100's at 500 W, and in fp32 {100 * VECTOR:.0f} % of every GPU's except a K80's,
  {100 * K80_VECTOR:.0f} %: its clock is rarely boosted.
  Other kernels reach {100 * MEMORY:.0f} % of the memory's rate. These are fitted to all runs of a constant together.
- Images per second (`hpcdl.cost.layers`): a convolution is an implicit matrix product, or Winograd's algorithm, or FFTs
  of tiles, whichever is fastest, as libraries try. TensorFlow, Goyal, Horovod, the lecture's P40: normalizations and
  activations are kernels of their own; AlexNet and VGG-16 have no normalizations. TensorFlow kept weights on
  the host, so they and their gradients cross PCIe, except AlexNet's and VGG-16's on the P100. Tensor cores need
  channels last: NVIDIA's fp16 runs have it, its tf32 is transposed before and after each convolution.
- Megatron 2019: batch 8 for each model, eager kernels. 2021: the microbatches and chunks of its authors' scripts.
  Korthikanti: three chunks for 175 B. All recompute, and sum gradients, as their papers say; 28 bytes move per
  parameter for Adam's update. Zero Bubble: eager kernels, balanced stages. FSDP: eager kernels, everything recomputed.
- torchtitan: selective checkpointing computes half of the layers again; flash attention. 405 B: weights stay gathered.
- DeepSeek-V3: each token goes to 9 experts on at most 4 nodes, hidden behind another microbatch; the bubble of ZB-V.
- Ring attention, DeepSeek-V3, the utilizations, 175 B parameters in 34 days, and Micikevicius's 2048 (two over FP16's
  gap at 1): no assumption; they are arithmetic.
- GPipe: equal stages, no time for messages, every microbatch equally efficient.
- ZeRO: no assumption; it is arithmetic."""


IMPORTS = """\
from hpcdl.cost.machines import A100_SUPERPOD
from hpcdl.cost.training import ADAM_BYTES, Layout, predict
from hpcdl.cost.work import Transformer"""


def example() -> Prediction:
    """175 B parameters on 64 A100 (Korthikanti et al. 2022)."""
    model = Transformer(layers=96, hidden=12288, sequence=2048, vocabulary=51200, heads=96)
    saving: dict[str, Any] = {"recompute": "selective", "sequence_parallel": True}
    adam: dict[str, Any] = {"precision": "fp16", "itemsize": 2, "update_bytes": ADAM_BYTES}
    layout = Layout(tensor=8, pipeline=8, chunks=3, schedule="interleaved", microbatch=1, **saving, **adam)
    return predict(model, A100_SUPERPOD, layout, batch=64)


def shown(function: Callable) -> str:
    """Return the lines of a function below its docstring."""
    lines = inspect.getsource(function).splitlines()[2:]
    return textwrap.dedent("\n".join(lines)).replace("return ", "").replace(": dict[str, Any]", "")


def table(lines: list[list[str]]) -> str:
    """Format rows of cells as a Markdown table; the first row is its head."""
    lines = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def figures(rows: list[Row]) -> str:
    """Return every figure with its interval, and the cause of each miss above a tenth."""
    head = ["source", "figure", "published", "predicted", "expected", "error", "cause of a miss"]
    return table([head, *(row.cells(cause(row.source, row.what) if missed(row) else "") for row in rows)])


def missed(row: Row) -> bool:
    """Return whether a cause is needed: the miss is above 10 % (or points), or outside the interval."""
    return abs(row.error) > 10 or not (row.inside or row.fitted)


def kinds() -> str:
    """Return the table of errors by kind of run."""
    head = ["kind of run", "public figures", "error, left out", "nine of ten within 15 %", "interval", "to know"]
    return table(
        [
            head,
            *(
                [
                    name,
                    f"{kind.rows}",
                    f"{100 * kind.error:.0f} %" if kind.rows else "unknown",
                    "yes" if reaches(kind.error, kind.rows) else "not reached",
                    f"{100 * (exp(-kind.width) - 1):+.0f} to {100 * (exp(kind.width) - 1):+.0f} %",
                    kind.says,
                ]
                for name, kind in KINDS.items()
            ),
        ]
    )


def summary(rows: list[Row]) -> str:
    """Summarise the errors of the predicted runs, and how many were beyond 15 % in kinds that do reach it."""
    runs = [row for row in rows if row.kind and not row.fitted]
    beyond = [row for row in runs if abs(row.relative) > ASKED]
    outside = [f"{row.source}, {row.what}" for row in rows if row.kind and not (row.inside or row.fitted)]
    unsaid = [row for row in beyond if reaches(KINDS[row.kind].error, KINDS[row.kind].rows)]
    alone = [row for row in beyond if reaches(*others(row, runs))]
    return (
        f"Of {len(runs)} figures of runs the median is missed by "
        f"{100 * median(abs(row.relative) for row in runs):.1f} %. "
        + (f"Outside of their interval: {'; '.join(outside)}." if outside else "All are in their interval.")
        + f"""

- Within 15 %: {len(runs) - len(beyond)}.
- Beyond, and said beforehand, in a kind for which 15 % is not reached: {len(beyond) - len(unsaid)}.
- Beyond, unsaid: {_named(unsaid)}. If only other sources had spoken for a kind: {_named(alone)}."""
    )


def _named(rows: list[Row]) -> str:
    names = "; ".join(f"{row.source}, {row.what}" for row in rows)
    return f"{len(rows)} ({names})" if rows else "0"


def others(row: Row, runs: list[Row]) -> tuple[float, int]:
    """Return the root mean square error of a kind's figures from other sources than the row's, and their number."""
    found = [run.relative for run in runs if run.kind == row.kind and run.source != row.source]
    return (sqrt(fmean(error**2 for error in found)) if found else 0.0), len(found)


def page() -> str:
    """Return the text of docs/published.md."""
    found = rows()
    plain, double = (
        ", ".join(f"{row.predicted:.0f}" for row in (goyal(spread)[0], *horovod(spread))) for spread in (0, 2 * SPREAD)
    )
    other = horovod(images_per_second=IMAGES_PER_SECOND | {"VGG-16": 132})[2].predicted
    return f"""\
# Published figures, and what the models say

Figures from papers and vendors, next to what `hpcdl.cost` predicts for the same run. "Exact" and "±" are arithmetic; a
range is the interval of a run of its kind. "Not reached" marks figures that the stated assumptions do not give.
"Fitted" marks figures that fixed an assumption alone: they agree by construction. This page is written by
`python -m hpcdl.cost.published > docs/published.md`; a test holds every figure within what is expected.

## A prediction

```python
{IMPORTS}

{shown(example)}
```

{textwrap.indent(textwrap.fill(str(example()), 100), "    ")}

## What is reached

{kinds()}

The error is the root mean square of predictions that did not know the figure: constants are fitted without its source
(or without the figure, where a device has one source). The interval is that of a further run, 95 in 100, and no
narrower than the worst public miss. Nine of ten are within 15 % where 1.6 times the error is. Without a public figure
the interval is a guess. A device that no public figure is of, such as an H100 with all of its 700 W, widens it by a
factor of up to {exp(OTHER_DEVICE):.1f}.

{summary(found)}

## Figures

{figures(found)}

## Assumptions

{ASSUMPTIONS}

## How much hangs on them

- Without spread, Goyal, Inception V3, ResNet-101 and VGG-16 would come out at {plain} %, with twice the
  spread at {double} %. Communication explains most of what VGG-16 loses, and next to nothing of what the others lose.
- Another version of TensorFlow's page has 132 images/s for VGG-16. With it the prediction is {other:.0f} %:
  the slower the GPU, the better its network looks.

## Not reached

- **GPipe at M = 1 and M = 4.** K M / (M + K - 1) is the most that M equal microbatches allow, and the published
  speeds are above it. They are relative to K = 2, M = 1, and the batch was adjusted to fit the memory, so that cells
  differ in more than their schedule. The schedule cannot say how much that is worth.
- **GPipe's AmoebaNet.** Its layers differ, so that its stages cannot be equal, and the longest sets the pace: 3.48 on 8
  accelerators, where equal stages would reach 6.56. The paper does not print the layers' times.
- **Goyal's 0.256 s.** A forward and a backward pass of 60 and 120 ms, at the pace of the slowest of 256, leave a fifth
  unexplained: updating weights, reading data and sums within the server are not in the model. The efficiency, a ratio
  of two iterations, suffers less.
- **Parameter servers.** How long a server and its workers take for each byte depends on the system: Caffe, GeePS and
  torch's RPC differ by more than their links do. Hence the widest interval but one.
- **Korthikanti's hardware utilization** (within a point, but below). The printed 52.8 and 57.0 % come out if the
  recomputed attention counts 12 b s^2 h for each layer, as much as its forward and backward pass; the operations of
  computing it once more are 4 b s^2 h.
- **Images by layers.** Concatenations, residual sums, pools and input are not in a list of layers, so Inception and
  ResNets come out too fast beside AlexNet and VGG-16. Goyal's and the large batch's speeds are not of layers alone: one
  is derived from a backward pass, the other from the time to the end. No constant is fitted to these two.
- **NCCL over 100 Gb/s TCP.** The issue reports 4 to 6 GB/s with the best settings, of 12.5; copying side by side would
  reach 7.2. The issue does not say what costs the rest; more connections were slower there.
- **The last of large batch.** 5 minutes are printed without decimals, and starting, evaluation and reading data weigh
  most in the shortest run.
- **The lecture's 99.2 %.** 218 images/s on each of 1,024 GPUs at 99.2 % are 90 epochs in 8.7 minutes: the slide prints
  7.8, the same digits turned around. Our ranks spread by 5 %, which alone costs more than 0.8 %.
- **The lecture's 2,048 GPUs.** 8.7 / 6.6 minutes are 1.32 times the speed of 1,024. The published batch ends at 65,536,
  which leaves 32 images for each GPU; nothing in alpha and beta costs the rest, and the slide does not say what does.

## Without a prediction

- HOGWILD!, BUCKWILD!, DistBelief and APAM: how long a step takes, and how often ranks collide, is not printed.
- Sequence parallelism (Li et al., table 4) and GPipe's table 1: batches and lengths are not printed.
- One weird trick (AlexNet on 1 to 8 GPUs): it needs the seconds of its layers on one GPU, and its buses.
- Micikevicius's and the large batches' accuracies: nothing here predicts what is learned.
- Zero Bubble's ZB-2p: its order is searched for, for each run.

## A bound

Overlap saves at most the communication c, and at most the backward pass b: min(c, b) / (f + b + c) of an iteration.
That is largest for c = b, and then 40 % if b = 2 f. The published savings of PyTorch's DDP (Li et al. 2020) are 38.0 %
and 35.2 % with NCCL, 26.8 % and 21.5 % with gloo.
"""
