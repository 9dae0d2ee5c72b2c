"""FSDP2 around a decoder. Oracle: one process; bytes and calls of the process group; shares of the parameters."""

from copy import deepcopy

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.collectives import carried_calls
from autograder.checks.messages import SECONDS, carried, sends
from autograder.exercises.drawing import whole_number
from autograder.exercises.frameworks.serial import (
    NUMBER,
    RTOL,
    decoder,
    decoder_weights,
    next_token,
    tokens,
    weights_agree,
)
from hpcdl.nn.decoder import Decoder

exercise = Exercise(
    "fsdp",
    points=10,
    minutes=14,
    functions=("shard", "whole", "restore"),
    meanings={
        "got mixed torch.Tensor and DTensor": "Plain tensors meet shares. In `shard`: a layer is in no group; shard "
        "the root, too. In `restore`: set_model_state_dict with full_state_dict=True cuts a whole state.",
        "'NoneType' object has no attribute": "`shard` returns None: return the model.",
        "value was None when it should not be": "The root was sharded before its blocks, and had taken all of them. "
        "Blocks first, then the root.",
    },
)

LR = 0.1
BLOCKS = 2


class Training:
    """A decoder, and each rank's tokens for some steps."""

    def __init__(self, p: int, rng, steps: int = 2, tied: bool = False, blocks: int = BLOCKS):
        self.p, self.tied, self.weights = p, tied, decoder_weights(rng, tied, blocks)
        self.batches = [[tokens(2, 5, rng) for _ in range(steps)] for _ in range(p)]
        self.setting = f"p = {p}, {steps} steps" + (", tied" if tied else "")
        self.setting += f", {blocks} blocks" if blocks != BLOCKS else ""

    def run(self, student):
        arguments = lambda rank: deepcopy((self.weights, self.batches[rank], self.tied))  # noqa: E731
        return student.ranks("shard", self.p, arguments, harness="fully_sharded")

    def serial(self):
        model = decoder(self.weights, self.tied)
        optimizer, losses = torch.optim.SGD(model.parameters(), LR), []
        for step in range(len(self.batches[0])):
            loss = torch.stack([next_token(model, mine[step]) for mine in self.batches]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [param.detach() for param in model.parameters()]

    def agrees(self, student):
        run, (losses, weights) = self.run(student), self.serial()
        for rank, (got, _, _, found, _) in enumerate(run.results):
            name = f"{self.setting}, rank {rank}"
            for step, right in enumerate(losses):
                checks.close(got[step], right, name=f"{name}: the loss of step {step}", rtol=10 * RTOL)
            weights_agree(found, weights, name)
        return run


@exercise.check(points=3, seconds=SECONDS)
def as_one_process(student, rng):
    "shard: losses and weights of one process, on 1 to 3 ranks; also where one matrix reads and writes tokens."
    for training in (Training(2, rng), Training(1, rng), Training(3, rng), Training(2, rng, tied=True)):
        for rank, (_, shares, *_) in enumerate(training.agrees(student).results):
            checks.that(
                training.p == 1 or any(mine < n for mine, n in shares),
                f"{training.setting}: rank {rank} holds every parameter whole, so nothing is sharded: "
                "fully_shard(module, mesh=mesh).",
                got=f"{len(shares)} of {len(shares)} parameters are whole",
                expected="each one a DTensor, Shard(0)",
            )
    carried(student, rng, lambda: Training(2, rng, steps=1).agrees(student), "p = 2")


@exercise.check(points=2, seconds=SECONDS, needs="as_one_process")
def a_share_of_each(student, rng):
    "Each rank holds a p-th of every parameter."
    for p, tied in ((2, False), (4, False), (2, True)):
        training = Training(p, rng, steps=1, tied=tied)
        run = training.agrees(student)
        for rank, (_, shares, *_) in enumerate(run.results):
            whole = [n for mine, n in shares if mine > 1.5 * n / p]
            held, all_of_it = sum(mine for mine, _ in shares), sum(n for _, n in shares)
            checks.that(
                held <= all_of_it / p * 1.25 and not whole,
                f"{training.setting}: rank {rank} holds {held} of {all_of_it} weights; its share is about "
                f"{all_of_it // p}. fully_shard(module, mesh=mesh) makes shares of what is in the module.",
                got=f"{sum(mine == n for mine, n in shares)} of {len(shares)} parameters are whole",
                expected="each one a DTensor, Shard(0)",
            )
    carried(student, rng, lambda: Training(2, rng, steps=1).agrees(student), "p = 2")


@exercise.check(points=3, seconds=SECONDS, needs="as_one_process")
def a_block_at_a_time(student, rng):
    "The blocks are gathered one after another, forward and backward, which saves memory."
    for p, blocks, tied in ((2, BLOCKS, False), (4, BLOCKS, False), (3, whole_number(rng, 4, 5), False), (2, 3, True)):
        model = Decoder(12, 8, 2, blocks, tied=tied)
        block = sum(param.numel() for param in model.blocks[0].parameters()) * NUMBER
        rest = sum(param.numel() for param in model.parameters()) * NUMBER - blocks * block
        training = Training(p, rng, steps=1, tied=tied, blocks=blocks)
        run = training.agrees(student)
        for rank, (_, _, calls, _, (begin, end)) in enumerate(run.results):
            carried = carried_calls(run, rank, calls, training.setting)
            gathered = [call.nbytes for call in carried if call.name == "all_gather" and begin < call.start <= end]
            most, limit = max(gathered, default=0), max(block, rest) * 1.3
            checks.that(
                most <= limit,
                f"{training.setting}: rank {rank} gathers {most} bytes at once; a block has {block}. The root was "
                "sharded before its blocks, or alone: it takes what no module inside has taken. Blocks first, then "
                "the root.",
                got=f"{len(gathered)} all-gathers in a step, the largest of {most} bytes",
                expected=f"none above {block}, those of a block",
            )
            checks.that(
                len(gathered) >= 2 * blocks,
                f"{training.setting}: rank {rank} makes {len(gathered)} all-gathers in a step, and {blocks} blocks are "
                "used forward and backward. What is not gathered again was not freed: every block stays whole after "
                "the forward pass. Leave reshard_after_forward as it is.",
                got=f"{len(gathered)} all-gathers",
                expected=f"at least {2 * blocks}: each block forward, and again backward",
            )
            checks.that(
                len(gathered) <= 2 * (blocks + 1),
                f"{training.setting}: rank {rank} makes {len(gathered)} all-gathers in a step. A call of fully_shard "
                "makes a group that is gathered at once: one for each block, not one for each layer in it.",
                got=f"{len(gathered)} all-gathers",
                expected=f"at most {2 * (blocks + 1)}: each block and the rest, forward and backward",
            )
            _all_is_gathered(training, run, rank, gathered, 2 * blocks * block + rest, blocks * block + rest, limit)


def _all_is_gathered(training: Training, run, rank: int, gathered: list[int], least: int, whole: int, limit) -> None:
    """What the layers need was gathered, and what the process group wrote down is what the machine carried."""
    checks.that(
        sum(gathered) >= least,
        f"{training.setting}: rank {rank} gathers {sum(gathered)} bytes in a step; two passes through the blocks and "
        f"one through the rest need {least}. You did not shard everything: every rank holds the rest whole.",
    )
    p, sent = training.p, [event.nbytes for event in sends(run) if event.rank == rank]
    # A ring sends a p-th of what is gathered in each message. Gradients are scattered; the check gathers the weights.
    checks.that(
        max(sent) * p <= limit and sum(sent) >= (p - 1) / p * (least + 2 * whole) * 0.95,
        f"{training.setting}: rank {rank} sends {sum(sent)} bytes, the largest message has {max(sent)}. Gathering the "
        f"blocks one at a time, forward and backward, takes {round((p - 1) / p * (least + 2 * whole))} in messages of "
        f"at most {round(limit / p)}.",
    )


@exercise.check(points=1, seconds=SECONDS)
def the_whole_state(student, rng):
    "whole: every parameter by its name, plain and whole, on rank 0 at least."
    for p, tied in ((2, False), (3, True)):
        weights = decoder_weights(rng, tied)
        right = decoder(weights, tied).state_dict()
        state, kinds = student.ranks(
            "whole", p, lambda rank, w=weights, t=tied: (deepcopy(w), t), harness="state_out"
        ).results[0]
        checks.equal(sorted(state), sorted(right), name=f"p = {p}: the names on rank 0")
        for name, x in right.items():
            checks.that(
                kinds[name] == "Tensor" or kinds[name] == "Parameter",
                f"p = {p}: {name} is a {show.show(kinds[name])}, which only these {p} ranks can read: every rank has "
                "its share. get_model_state_dict with full_state_dict=True makes it whole.",
            )
            checks.close(state[name], x, name=f"p = {p}: {name}", rtol=0.0, atol=0.0)


@exercise.check(points=1, seconds=SECONDS)
def and_back(student, rng):
    "restore: a whole state becomes shares again, on another number of ranks."
    for p in (2, 3):
        weights, other = decoder_weights(rng), decoder_weights(rng)
        state = {name: x.clone() for name, x in decoder(weights).state_dict().items()}
        run = student.ranks("restore", p, lambda rank, o=other, s=state: deepcopy((o, s, False)), harness="state_in")
        for rank, (found, shares) in enumerate(run.results):
            before = {"The weights have not changed: nothing was loaded.": lambda o=other: o}
            weights_agree(found, weights, f"p = {p}, rank {rank}, after restore", before)
            checks.that(
                any(mine < n for mine, n in shares),
                f"p = {p}: after restore rank {rank} holds every parameter whole. It should hold its share.",
            )
