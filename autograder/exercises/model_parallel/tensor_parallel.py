"""Layers split by their outputs or inputs. Oracle: the undivided layer in float64, the trace, the memory meter."""

import itertools

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, carried
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import BY_HAND, DERIVATIVES

exercise = Exercise(
    "tensor_parallel",
    points=20,
    minutes=20,
    functions=("share", "ColumnLinear", "RowLinear"),
    forbid=DERIVATIVES,
    instead=BY_HAND,
)

SIZES = ((2, 4, 6), (1, 3, 2), (3, 5, 7), (4, 6, 3), (5, 3, 4))  # p, inputs, outputs: few of them divide
N = 3  # rows of x


def drawn(rng) -> tuple[int, int, int]:
    """p, inputs and outputs, different for each student."""
    return whole_number(rng, 3, 4), whole_number(rng, 6, 12), whole_number(rng, 6, 12)


MEAN = "This is the mean over the rows: a bias's gradient is the sum of dy over them."


def part(x: torch.Tensor, dim: int, rank: int, p: int) -> torch.Tensor:
    """Return the rank's part of x along `dim`: the first ranks have one more if p does not divide."""
    size = x.shape[dim]
    begin = [r * (size // p) + min(r, size % p) for r in range(p + 1)]
    return x.narrow(dim, begin[rank], begin[rank + 1] - begin[rank]).contiguous()


def summed(x: torch.Tensor, dim: int, p: int) -> torch.Tensor | None:
    """Return the sum of all ranks' parts of x; None if their lengths differ."""
    parts = x.tensor_split(p, dim)
    return None if x.shape[dim] % p else torch.stack(parts).sum(0)


class Dense:
    """A layer with its gradients on one machine, and the expected parts on each rank."""

    def __init__(self, p: int, inputs: int, outputs: int, rng, dtype=torch.float64):
        self.p = p
        self.weight, self.bias = (torch.randn(*s, generator=rng).to(dtype) for s in ((outputs, inputs), (outputs,)))
        self.x, self.dy = (torch.randn(N, n, generator=rng).to(dtype) for n in (inputs, outputs))
        self.y = self.x @ self.weight.T + self.bias
        self.dx, self.weight_grad, self.bias_grad = self.dy @ self.weight, self.dy.T @ self.x, self.dy.sum(0)

    def run(self, student, name: str, **machine):
        """Run the student's layer on p ranks: a column layer gets its part of dy, a row layer its part of x."""
        cut = {"ColumnLinear": (self.x, None, self.dy, 1), "RowLinear": (self.x, 1, self.dy, None)}[name]

        def arguments(rank):
            x, x_dim, dy, dy_dim = cut
            x = x.clone() if x_dim is None else part(x, x_dim, rank, self.p)
            dy = dy.clone() if dy_dim is None else part(dy, dy_dim, rank, self.p)
            return self.weight.clone(), self.bias.clone(), x, dy

        return student.ranks(name, self.p, arguments, harness="layer", **machine)


def setting(dense: Dense, name: str, what: str, rank: int) -> str:
    outputs, inputs = dense.weight.shape
    return f"p = {dense.p}, {inputs} inputs, {outputs} outputs: {name}'s {what} on rank {rank}"


@exercise.check(points=3, seconds=SECONDS)
def shares(student, rng):
    "share: each rank's part along a dimension, as even as possible, with nothing lost, for p = 1 to 5."
    for p, shape, dim in ((2, (4, 3), 0), (3, (2, 7), 1), (5, (3, 2), 0), (4, (6, 2, 3, 3), 0), (1, (3,), 0)):
        w = torch.randn(shape, generator=rng, dtype=torch.float64)
        run = student.ranks("share", p, lambda rank, w=w, dim=dim: (w.clone(), dim))
        whole = sum(got.shape[dim] for got in run.results if type(got) is torch.Tensor and got.dim() > dim)
        for rank in range(p):
            each = shape[dim] // p
            mistakes = {"Every rank has the whole tensor: cut it.": w}
            if whole == shape[dim]:
                chunks = "chunk makes all parts but the last as long as the first: tensor_split makes them even."
                mistakes[chunks] = dict(enumerate(w.chunk(p, dim))).get(rank, w)
                begin, end = (shape[dim] * r // p for r in (rank, rank + 1))
                mistakes["The longer parts come first, as in tensor_split."] = w.narrow(dim, begin, end - begin)
            else:
                rest = "The rest is lost if p does not divide the length: use tensor_split."
                mistakes[rest] = w.narrow(dim, rank * each, each)
            name = f"p = {p}: share of a {shape} along dim {dim}, on rank {rank}"
            if type(got := run.results[rank]) is torch.Tensor:
                lost = next((m for m, v in mistakes.items() if p > 1 and checks.alike(got, v)), "")
                right = part(w, dim, rank, p)
                checks.that(not lost or got.shape == right.shape, f"{name} has shape {tuple(got.shape)}. {lost}")
            checks.close(got, part(w, dim, rank, p), name=name)


@exercise.check(points=5, seconds=SECONDS)
def column(student, rng):
    "ColumnLinear: its part of the outputs, the whole gradient of x, its own weights' gradients, in every pass."
    for sizes in (*SIZES, drawn(rng)):
        column_is_right(student, Dense(*sizes, rng))
    column_is_right(student, Dense(2, 4, 6, rng, torch.float32))
    carried(student, rng, lambda: column_is_right(student, Dense(2, 4, 4, rng)), "p = 2, ColumnLinear")


def column_is_right(student, dense: Dense, **machine):
    """Check what every rank's ColumnLinear computes; return the run."""
    run = dense.run(student, "ColumnLinear", **machine)
    for rank in range(dense.p):
        expected = {
            "forward(x)": part(dense.y, 1, rank, dense.p),
            "backward(dy)": dense.dx,
            "weight": part(dense.weight, 0, rank, dense.p),
            "bias": part(dense.bias, 0, rank, dense.p),
            "weight_grad": part(dense.weight_grad, 0, rank, dense.p),
            "bias_grad": part(dense.bias_grad, 0, rank, dense.p),
        }
        expected |= second_pass(expected, part(dense.dy, 1, rank, dense.p), dense.x)
        own = part(dense.dy, 1, rank, dense.p) @ part(dense.weight, 0, rank, dense.p)
        sums = "Do not sum over the ranks: each rank's rows of the weights have their own gradient."
        mistakes = {
            "backward(dy)": {
                "Each rank's outputs contribute to the gradient of x: sum it over the ranks.": own,
                "This is the mean over the ranks: take the sum.": dense.dx / dense.p,
            },
            "weight_grad": {sums: summed(dense.weight_grad, 0, dense.p)},
            "bias_grad": {sums: summed(dense.bias_grad, 0, dense.p), MEAN: expected["bias_grad"] / N},
        }
        compare(run.results[rank], expected, mistakes, dense, "ColumnLinear", rank)
    return run


@exercise.check(points=5, seconds=SECONDS)
def row(student, rng):
    "RowLinear: the whole output with the bias added once, its part of the gradient of x, its own weights' gradients."
    for sizes in (*SIZES, drawn(rng)):
        row_is_right(student, Dense(*sizes, rng))
    row_is_right(student, Dense(2, 4, 6, rng, torch.float32))
    carried(student, rng, lambda: row_is_right(student, Dense(2, 4, 4, rng)), "p = 2, RowLinear")


def row_is_right(student, dense: Dense, **machine):
    """Check what every rank's RowLinear computes; return the run."""
    run = dense.run(student, "RowLinear", **machine)
    for rank in range(dense.p):
        weight, x = part(dense.weight, 1, rank, dense.p), part(dense.x, 1, rank, dense.p)
        expected = {
            "forward(x)": dense.y,
            "backward(dy)": part(dense.dx, 1, rank, dense.p),
            "weight": weight,
            "bias": dense.bias,
            "weight_grad": part(dense.weight_grad, 1, rank, dense.p),
            "bias_grad": dense.bias_grad,
        }
        expected |= second_pass(expected, dense.dy, x)
        mistakes = {
            "forward(x)": {
                "The bias is added once for each rank: add it after the sum over the ranks.": dense.y
                + (dense.p - 1) * dense.bias,
                "This is the rank's own part: sum it over the ranks.": x @ weight.T + dense.bias,
                "This is the mean over the ranks: sum the parts of a product.": (dense.y - dense.bias) / dense.p
                + dense.bias,
                "The bias is missing.": dense.y - dense.bias,
            },
            "bias_grad": {
                "Do not sum over the ranks: dy is the same on all of them.": dense.p * dense.bias_grad,
                MEAN: dense.bias_grad / N,
            },
            "backward(dy)": {
                "Do not sum over the ranks: each rank's inputs have their own gradient.": summed(dense.dx, 1, dense.p)
            },
        }
        compare(run.results[rank], expected, mistakes, dense, "RowLinear", rank)
    return run


def second_pass(expected: dict, dy: torch.Tensor, x: torch.Tensor) -> dict:
    """Return the gradients of a second pass, of the rows of x in reverse and the same dy."""
    return {"weight_grad" + SECOND: dy.T @ x.flip(0), "bias_grad" + SECOND: expected["bias_grad"]}


SECOND = " after a second pass, with another x"
FIRST_X = "This is the gradient for the x of the first pass: each forward keeps its own."


ADDS_UP = "You add the gradients of both passes: store only those of this pass."


def compare(found, expected: dict, mistakes: dict, dense: Dense, name: str, rank: int) -> None:
    for (what, value), got in zip(expected.items(), found, strict=False):
        known = mistakes.get(what, {}) if dense.p > 1 else {}
        if what.endswith(SECOND):
            first = expected[what.removesuffix(SECOND)]
            known = {ADDS_UP: first + value, FIRST_X: first}
            known = {sentence: wrong for sentence, wrong in known.items() if not torch.allclose(wrong, value)}
        known = {sentence: wrong for sentence, wrong in known.items() if isinstance(wrong, torch.Tensor)}
        checks.close(
            got, value, name=setting(dense, name, what, rank), mistakes=known, why="The undivided layer computes this."
        )


PHASES = ("made", "called forward", "called backward", "called forward and backward once more")
TALKS = {  # when a layer may send
    "ColumnLinear": (0, 0, 1, 1),
    "RowLinear": (0, 1, 0, 1),
}
IS_RIGHT = {"ColumnLinear": column_is_right, "RowLinear": row_is_right}


@exercise.check(points=4, needs=("column", "row"), seconds=SECONDS)
def one_all_reduce_each_way(student, rng):
    "One all-reduce forward, in the row layer, and one backward, in the column layer; no other message."
    for name, allowed in TALKS.items():
        for sizes in (*SIZES, drawn(rng)):
            dense = Dense(*sizes, rng)
            run = IS_RIGHT[name](student, dense, alpha=1e-3)
            for (phase, expected), rank in itertools.product(enumerate(allowed), range(dense.p)):
                events = [e for e in run.trace if e.op not in ("compute", "recv") and int(e.start + 1e-9) == phase]
                mine = [event for event in events if event.rank == rank]
                found = len(mine)
                if found > expected or (mine and mine[0].op != "all_reduce"):
                    raise checks.CheckFailure(
                        f"p = {dense.p}: while a {name} is {PHASES[phase]}, rank {rank} calls "
                        f"{' and '.join(f'comm.{event.op}' for event in mine)}.",
                        got=f"{found} operations over the ranks",
                        expected="one comm.all_reduce" if expected else "no message",
                        why="All ranks of a column layer have x, and all ranks of a row layer have dy: send only sums.",
                    )
                nbytes = 8 * N * sizes[2 if name == "RowLinear" else 1]
                checks.that(
                    all(event.nbytes == nbytes for event in mine),
                    f"p = {dense.p}: the all-reduce of a {name} that is {PHASES[phase]} is of "
                    f"{sum(event.nbytes for event in mine)} bytes on rank {rank}, expected {nbytes}: no more than the "
                    "sum has.",
                )


@exercise.check(points=3, needs=("column", "row"), seconds=SECONDS)
def no_more_than_a_share(student, rng):
    "A rank keeps only its share of the weights, in separate memory, and room for its gradients."
    for name in TALKS:
        for p, inputs, outputs in ((2, 8, 8), *SIZES[2:], drawn(rng)):
            dense = Dense(p, inputs, outputs, rng)
            run = IS_RIGHT[name](student, dense)
            for rank, (*_, own, kept) in enumerate(run.results):
                mine = run.results[rank][2].numel() + run.results[rank][3].numel()
                everything = dense.weight.nbytes + dense.bias.nbytes
                view = "A slice is a view: it keeps the whole tensor in memory. Copy your part: .clone()."
                checks.that(
                    own is True,
                    f"p = {p}: a {name}'s weight or bias on rank {rank} lies in the whole layer's memory. {view}",
                )
                checks.that(
                    type(kept) is not int or kept >= 8 * mine,
                    f"p = {p}: once a {name} is made, rank {rank} keeps {kept} bytes; its parameters have {8 * mine}. "
                    "Keep them in torch's tensors, whose memory is measured.",
                )
                if type(kept) is not int or kept > 8 * mine:
                    raise checks.CheckFailure(
                        f"p = {p}: once a {name} is made, rank {rank} keeps {kept} bytes; its parameters have "
                        f"{8 * mine}. Keep nothing else of the whole layer; `weight_grad` and `bias_grad` may have "
                        "room already.",
                        got=f"{kept} bytes",
                        expected=f"{8 * mine} bytes, and room for gradients (the whole layer: {everything})",
                    )
