"""The support matrix in docs/support.md: `python tests/zoo/page.py` writes it, the tests compare with it."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from zoo.outcomes import RIGHT, outcome
from zoo.registry import ENTRIES, WRAPPERS

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
HEAD = """# Which models and loops each wrapper supports

Each row is a small model with its training loop, as users write them. **right** means that weights and buffers after
training equal a serial run in float64 to 1e-12, on 1, 2 and 3 ranks. A number means that the wrapper refuses the model,
on every rank, with the sentence of that number below the table; **–** means that the loop is about another wrapper.
**DDP** is `hpcdl.ddp.DistributedDataParallel`, **ZeRO-1** and **ZeRO-2** are `hpcdl.sharding.ShardedOptimizer` with
`stage=1` and `stage=2`, **ZeRO-3** is `hpcdl.sharding.FullyShardedDataParallel`. In **pipeline** the model is the
middle layer of three, cut by `hpcdl.parallel.pipeline` on as many stages as there are ranks, each batch in two
microbatches. In **tensor parallel** every layer that `of(dense)` of `hpcdl.parallel.tensor` can split is split: linear
layers by columns and by rows, convolutions, embeddings, heads with their loss, attention and encoder layers, and
mixtures of experts by `hpcdl.parallel.Experts`; the rest of the model is on every rank.

In tensor parallelism and pipelines a rank has gradients that others do not have: reading their norm is refused, and
`hpcdl.parallel.clip_grad_norm_` clips by the norm over all ranks. Outside its layer a split layer's weight is a share:
sums over its elements are right as terms of a loss, other uses are refused, and `hpcdl.parallel.tensor.join` gives the
whole weight.

What a forward pass draws or decides for its whole batch, each rank draws or decides for its own samples, and a pipeline
for each microbatch: dropout, noise, layers skipped at random, an early exit by the batch's mean. Weights then differ
from those of one process. Draw from a generator that all ranks seed alike; decide by sample, or by a number that you
sum over the ranks. In tensor parallelism all ranks have the whole batch and must draw alike;
`hpcdl.parallel.tensor.dropout` masks a share like the whole.

If ranks or microbatches take different ways by their whole batches, that is refused: by DDP and pipelines at once, by
ZeRO-1 and ZeRO-2 when it happens again, by ZeRO-3 if ranks call other layers. Nothing notices that all ranks take one
way where one process would take another.

A layer that computes with several samples computes with those of its rank, in a pipeline with those of a microbatch:
batch norm, a softmax or mean over samples, attention between samples, a queue of negatives, the means of a codebook. Of
such buffers all ranks then have rank 0's. A loop does the same if it mixes or weighs samples by their batch before the
loss: mixup, normalized advantages, samples below the median loss. Pipelines refuse batch norm, DDP and ZeRO warn of it,
and losses that compare samples are refused. Nothing notices the rest while you train:
`hpcdl.ddp.decisions.mixes(model, (x,), {})` says beforehand whether outputs depend on other samples, in eval mode. A
wrapper does not ask that itself: it would have to call your module once more, which repeats what hooks and your own
Python code do, such as counting calls; and a loss's graph does not tell samples from another axis of the same length.

DDP and ZeRO read by what a loss divides from its graph, also in 16 bits and inside checkpoints, and refuse one that is
no mean over the counted samples. Some losses they cannot read: a compiled one, an `autograd.Function` that returns a
number, one of more than 320 operations, gradients that you assign yourself. These are taken for means over samples, and
a warning says so once, with the cause. If such a loss divides by another number, count that number.

In rows with **same batch** every rank has the same samples. For the result of one process compute with all ranks'
samples: gather them, or split the network by tensor parallelism.

If a batch's loss or backward pass fails on every rank, and your loop leaves that batch out, ZeRO-1 and tensor
parallelism simply continue. The others may refuse the next batch. End the failed step first: call `synchronize()`, in
ZeRO-2 `clip(max_norm)`, then `zero_grad()`. Or wrap the model anew, as ZeRO-3 needs if there was no gradient yet: a new
wrapper on the same communicator receives none of the old one's messages. If only some ranks leave their batch out,
all ranks refuse that step.

Under ZeRO-3 a parameter between passes is a piece with one axis: a loop that asks for `p.dim() == 2` finds none, and
nothing notices. Change gradients by their shapes in hooks that you register before wrapping.

The tests in `tests/zoo` run every cell and compare it with this page; `python tests/zoo/page.py` writes it.

"""

ELSEWHERE = "–"
CASES = [(name, column) for name in ENTRIES for column, kit in WRAPPERS.items() if kit.trains(ENTRIES[name])]

Matrix = dict[tuple[str, str], str]


def read() -> Matrix:
    """The outcome of each (entry, wrapper) that the page states."""
    text = PAGE.read_text(encoding="utf-8")
    sentences = dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    columns = table[0][1:] if table else []
    return {
        (name, column): sentences.get(cell, cell)
        for name, *cells in table[2:]
        for column, cell in zip(columns, cells, strict=True)
        if cell != ELSEWHERE
    }


def write(matrix: Matrix) -> None:
    """Write the page; a refusal is a number, and its sentence is below the table."""
    sentences = sorted({said for said in matrix.values() if said != RIGHT})
    numbers = {said: str(i) for i, said in enumerate(sentences, 1)}
    lines = [f"| model or loop | {' | '.join(WRAPPERS)} |", "|---" * (len(WRAPPERS) + 1) + "|"]
    for name in ENTRIES:
        cells = [matrix.get((name, column), ELSEWHERE) for column in WRAPPERS]
        lines.append(f"| {name} | {' | '.join(numbers.get(cell, cell) for cell in cells)} |")
    refusals = [f"{numbers[said]}. {said}" for said in sentences]
    PAGE.write_text(HEAD + "\n".join([*lines, "", "The refusals:", "", *refusals]) + "\n", encoding="utf-8")


def main() -> None:
    """Run every entry under every wrapper on 2 ranks and write the page; print the cells that are neither."""
    matrix: Matrix = {}
    for name, column in CASES:
        try:
            matrix[name, column] = outcome(name, column, 2)
        except Exception as error:
            print(f"FAILED {name} under {column}: {str(error)[:300]}")
    write(matrix)


if __name__ == "__main__":
    main()
