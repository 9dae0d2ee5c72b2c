"""A DTensor plan for a decoder. Oracle: one process; collectives and shares of the parameters."""

from copy import deepcopy

from torch.nn.functional import cross_entropy

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS
from autograder.exercises.frameworks.serial import NUMBER, decoder, decoder_weights, tokens

exercise = Exercise(
    "plan",
    points=15,
    minutes=20,
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
LINEAR = ("attention.q", "attention.k", "attention.v", "attention.out", "mlp.up", "mlp.down")


class Pass:
    """One pass through a decoder, the same tokens on all ranks."""

    def __init__(self, p: int, rng):
        self.p, self.weights, self.tokens = p, decoder_weights(rng), tokens(2, 5, rng)
        self.setting = f"p = {p}"

    def run(self, student):
        return student.ranks("plan", self.p, lambda rank: deepcopy((self.weights, self.tokens)), harness="planned")

    def agrees(self, student):
        run, model = self.run(student), decoder(self.weights)
        logits = model(self.tokens)
        cross_entropy(logits[:, :-1].flatten(0, 1), self.tokens[:, 1:].flatten()).backward()
        gradients = {name: param.grad for name, param in model.named_parameters()}
        for rank, (got, _, _, found) in enumerate(run.results):
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


@exercise.check(points=4, seconds=SECONDS)
def the_same_numbers(student, rng):
    "Logits and gradients are those of one process, on 1 and 2 ranks."
    for p in (2, 1):
        Pass(p, rng).agrees(student)


@exercise.check(points=5, seconds=SECONDS, needs="the_same_numbers")
def a_share_of_each_matrix(student, rng):
    "All six matrices of every block are cut: each rank has half of them."
    one = Pass(2, rng)
    for rank, (_, _, shares, _) in enumerate(one.agrees(student).results):
        uncut = [
            f"blocks.{b}.{name}" for b in range(BLOCKS) for name in LINEAR
            if shares[f"blocks.{b}.{name}.weight"][0] * 2 != shares[f"blocks.{b}.{name}.weight"][1]
        ]  # fmt: skip
        checks.that(
            not uncut,
            f"p = 2: rank {rank} holds all of {', '.join(uncut[:6])}: the plan does not name "
            f"{'it' if len(uncut) == 1 else 'them'}. Names are those of model.named_modules().",
            got=f"{len(uncut)} of {BLOCKS * len(LINEAR)} matrices are whole",
            expected="none",
        )


@exercise.check(points=6, seconds=SECONDS, needs="the_same_numbers")
def two_sums_in_a_block(student, rng):
    "A block sends two sums forward, attention's and the MLP's, and nothing else."
    one = Pass(2, rng)
    sum_bytes = one.tokens.numel() * HIDDEN * NUMBER
    for rank, (_, (forward, backward), *_) in enumerate(one.agrees(student).results):
        names = [name for name, _ in forward]
        others = sorted({name for name in names if name != "all_reduce"})
        count = {name: names.count(name) for name in set(names)}
        sent = sum(nbytes for _, nbytes in forward)
        checks.that(
            not others and len(names) <= 2 * BLOCKS and sent <= 2 * BLOCKS * sum_bytes,
            f"p = 2: in the forward pass rank {rank} makes {len(names)} collectives"
            + (f", {count[others[0]]} of them {others[0]}" if others else "")
            + f", of {sent} bytes; {2 * BLOCKS} all-reduces of {sum_bytes} are enough. Columns first, q, k, v and up: "
            "each rank has some heads, some of the MLP's numbers, and nobody needs the others'. Then rows, out and "
            "down, whose results are added up.",
            got=", ".join(f"{n} × {name}" for name, n in sorted(count.items())) or "none",
            expected=f"{2 * BLOCKS} × all_reduce",
        )
        most = 6 * BLOCKS * sum_bytes
        returned = sum(nbytes for _, nbytes in backward)
        checks.that(
            returned <= most, f"p = 2: in the backward pass rank {rank} exchanges {returned} bytes; {most} are enough."
        )
