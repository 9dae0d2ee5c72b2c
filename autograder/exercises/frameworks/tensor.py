"""A DTensor plan for a decoder. Oracle: one process; collectives and shares of the parameters."""

import difflib
from collections import Counter
from copy import deepcopy

from torch.nn.functional import cross_entropy

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.collectives import carried_calls
from autograder.checks.messages import SECONDS, carried
from autograder.exercises.drawing import whole_number
from autograder.exercises.frameworks.serial import NUMBER, decoder, decoder_weights, tokens

exercise = Exercise(
    "plan",
    points=10,
    minutes=12,
    functions=("plan",),
    meanings={
        "size mismatch": "A layer has all numbers where the next one has its share: after ColwiseParallel comes "
        "RowwiseParallel.",
        "shapes cannot be multiplied": "A layer gets a share of its input and has all of its weights, or the other way "
        "round: ColwiseParallel before, RowwiseParallel after.",
        "same reduction dim": "A layer has its share of the numbers where the next one wants all: after "
        "ColwiseParallel comes RowwiseParallel.",
        "must match the size": "A layer has all numbers where the next one has its share.",
    },
)

BLOCKS, HIDDEN = 2, 8
BACKWARD = 6  # sums in a block's backward pass that are enough, however the layers are cut
LINEAR = ("attention.q", "attention.k", "attention.v", "attention.out", "mlp.up", "mlp.down")


class Pass:
    """One pass through a decoder, the same tokens on all ranks."""

    def __init__(self, p: int, rng, blocks: int = BLOCKS):
        self.p, self.blocks = p, blocks
        self.weights, self.tokens = decoder_weights(rng, blocks=blocks), tokens(2, 5, rng)
        self.setting = f"p = {p}" + (f", {blocks} blocks" if blocks != BLOCKS else "")

    def run(self, student):
        run = student.ranks("plan", self.p, lambda rank: deepcopy((self.weights, self.tokens)), harness="planned")
        for misfit, *_ in run.results:
            fits(misfit, self.setting, self.blocks)
        return run

    def agrees(self, student):
        run, model = self.run(student), decoder(self.weights)
        logits = model(self.tokens)
        cross_entropy(logits[:, :-1].flatten(0, 1), self.tokens[:, 1:].flatten()).backward()
        gradients = {name: param.grad for name, param in model.named_parameters()}
        for rank, (got, _, _, found, _) in enumerate(run.results):
            checks.close(
                got,
                logits.detach(),
                name=f"{self.setting}: the logits on rank {rank}",
                why="A plan says where numbers are, and changes none.",
                rtol=1e-12,
                atol=1e-12,
            )
            for name, right in gradients.items():
                checks.close(
                    found[name],
                    right,
                    name=f"{self.setting}: the gradient of {name} on rank {rank}",
                    rtol=1e-11,
                    atol=1e-12,
                )
        return run


def fits(misfit, setting: str, blocks: int) -> None:
    """The plan is a dict, and every name in it is a module's; `misfit` is what the harness found instead of logits."""
    checks.that(
        type(misfit) is not str,
        f"{setting}: plan(model) is {show.an(str(misfit))}, expected a dict from names to styles. Does it end in "
        "`return`?",
    )
    if type(misfit) is list:
        known = [f"blocks.{b}.{name}" for b in range(blocks) for name in LINEAR]
        name = misfit[0]
        near = difflib.get_close_matches(name, known, n=1)
        checks.fail(
            f"{setting}: the plan names {show.show(name)}, and the decoder has no module of that name"
            + (f". Did you mean {near[0]!r}?" if near else "; model.named_modules() lists them."),
            got=", ".join(misfit[:6]),
            expected=", ".join(known[: len(LINEAR)]) + ", ...",
            why="torch leaves such a name out of the plan, so its layer stays whole.",
        )


@exercise.check(points=3, seconds=SECONDS)
def the_same_numbers(student, rng):
    "Logits and gradients are those of one process, on 1 and 2 ranks."
    run = Pass(2, rng).agrees(student)
    for rank, (_, _, shares, *_) in enumerate(run.results):
        names = matrices(shares)
        checks.that(
            len(uncut(shares)) < len(names),
            f"p = 2: the plan cuts nothing, so rank {rank} does all the work: {len(names)} of {len(names)} matrices "
            "are whole. Name the blocks' layers, each with its style.",
        )
    Pass(1, rng).agrees(student)
    carried(student, rng, lambda: Pass(2, rng).agrees(student), "p = 2")


def matrices(shares: dict) -> list[str]:
    blocks = sorted({int(name.split(".")[1]) for name in shares if name.startswith("blocks.")})
    return [f"blocks.{b}.{name}" for b in blocks for name in LINEAR if f"blocks.{b}.{name}.weight" in shares]


def uncut(shares: dict) -> list[str]:
    """Return the matrices that a rank of two does not hold half of."""
    sizes = {name: shares[f"{name}.weight"] for name in matrices(shares)}
    return [name for name, (mine, whole) in sizes.items() if 2 * mine != whole]


@exercise.check(points=3, seconds=SECONDS, needs="the_same_numbers")
def a_share_of_each_matrix(student, rng):
    "All six matrices of every block are cut: each rank has half of them."
    for one in (Pass(2, rng), Pass(2, rng, blocks=whole_number(rng, 9, 12))):
        for rank, (_, _, shares, *_) in enumerate(one.agrees(student).results):
            whole = uncut(shares)
            checks.that(
                not whole,
                f"{one.setting}: rank {rank} holds all of {', '.join(whole[:6])}: the plan does not name "
                f"{'it' if len(whole) == 1 else 'them'}. Names are those of model.named_modules().",
                got=f"{len(whole)} of {len(matrices(shares))} matrices are whole",
                expected="none",
            )


@exercise.check(points=4, seconds=SECONDS, needs="the_same_numbers")
def two_sums_in_a_block(student, rng):
    "A block sends two sums forward, attention's and the MLP's, and nothing else."
    one = Pass(2, rng, blocks=whole_number(rng, 3, 5))
    sum_bytes, sums = one.tokens.numel() * HIDDEN * NUMBER, 2 * one.blocks
    run = one.agrees(student)
    for rank, (_, calls, shares, _, (begin, middle, end)) in enumerate(run.results):
        carried = carried_calls(run, rank, calls, one.setting)
        forward = [call for call in carried if begin < call.start <= middle]
        names = [call.name for call in forward]
        others = sorted({name for name in names if name != "all_reduce"})
        count = Counter(names)
        sent = sum(call.nbytes for call in forward)
        checks.that(
            not others and len(names) <= sums and sent <= sums * sum_bytes,
            f"{one.setting}: in the forward pass rank {rank} makes {len(names)} collectives"
            + (f", {count[others[0]]} of them {others[0]}" if others else "")
            + f", of {sent} bytes; {sums} all-reduces of {sum_bytes} are enough. Columns first, q, k, v and up: "
            "each rank has some heads, some of the MLP's numbers, and no rank needs the others'. Then rows, out and "
            "down, whose results are added up.",
            got=", ".join(f"{n} × {name}" for name, n in sorted(count.items())) or "none",
            expected=f"{sums} × all_reduce",
        )
        parts = {tuple(name.split(".")[:3]) for name in {*matrices(shares)} - {*uncut(shares)}}
        checks.that(
            len(parts) == sums,
            f"{one.setting}: {len(parts)} parts of blocks are cut, expected {sums}, the attention and the MLP of every "
            "block. Name the layers of all blocks, however many model.named_modules() has.",
        )
        checks.that(
            len(names) == sums,
            f"{one.setting}: in the forward pass rank {rank} makes {len(names)} collectives, and {len(parts)} parts of "
            "blocks are cut: what rows give has to be added up.",
        )
        most = BACKWARD * one.blocks * sum_bytes
        returned = sum(call.nbytes for call in carried if middle < call.start <= end)
        checks.that(
            returned <= most,
            f"{one.setting}: in the backward pass rank {rank} exchanges {returned} bytes; {most} are enough: the "
            "gradients of what q, k, v and up read are added up, and nothing else travels.",
        )
        _as_many_bytes_travel(run, rank, sums * sum_bytes + most, sum(shares[name][1] for name in shares) * NUMBER)


def _as_many_bytes_travel(run, rank: int, of_sums: int, of_gradients: int) -> None:
    """The messages that the machine carried are the sums, and the gradients that the check gathers."""
    checks.that(
        run.bytes_sent[rank] <= of_sums + of_gradients,
        f"p = 2: rank {rank} sends {run.bytes_sent[rank]} bytes in all; the sums and the check's own gathering of the "
        f"gradients have {of_sums + of_gradients}. Does the plan, or a style's layout, gather something besides?",
    )
