"""A layer that is computed twice instead of being kept. Oracle: autograd on what keeps all; a search of all plans."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS
from autograder.exercises.ready_made import RECOMPUTATION
from autograder.inside.shard_harnesses import block
from autograder.sessions.errors import StudentError

exercise = Exercise(
    "checkpointed",
    points=15,
    minutes=20,
    extra=True,
    functions=("Checkpointed", "plan"),
    forbid=RECOMPUTATION,
    instead="Write the second forward pass yourself.",
)

KEPT = "What is between input and output is kept: forward must call f without recording it."
FIRST = "This is the gradient of the first call of f: take the recording of the second one."
COPIED = "Copies of the inputs are kept: save the inputs themselves."
ROWS, WIDE, HIDDEN = 4, 5, 64  # what lies between is much larger than inputs and outputs


class Pass:
    """x through two products with dropout and `others` between them, and where the backward pass begins.

    In the backward pass f is `later` times what it was: gradients of a kept recording miss the factor.
    """

    def __init__(self, rng, dropout: float, later: float = 1.0, others: int = 1):
        self.weights = [torch.randn(s, generator=rng).double() / 4 for s in ((HIDDEN, WIDE), (WIDE, HIDDEN))]
        x, self.dy = (torch.randn(ROWS, WIDE, generator=rng).double() for _ in range(2))
        self.inputs = [x, *(torch.randn(ROWS, HIDDEN, generator=rng).double() for _ in range(others))]
        self.names = ["x", "z", "the third input"][: 1 + others]
        self.dropout, self.later, self.seed = dropout, later, int(torch.randint(1 << 30, (), generator=rng))

    def run(self, student):
        """y, gradients, calls, kept bytes and draws."""
        arguments = (self.weights, self.inputs, self.dy, self.dropout, self.seed, self.later)
        try:
            return student.ranks("Checkpointed", 1, lambda rank: arguments, harness="recomputed").results[0]
        except StudentError as error:
            if "does not require grad" not in error.text:
                raise
            raise checks.CheckFailure(
                f"In the backward pass: {error.text}",
                why="torch.autograd.backward(y, dy) needs the recording of the pass that computes y.",
                mistake="The second forward pass is not recorded. Inside backward, record with torch.enable_grad(), "
                "and with inputs that require a gradient.",
            ) from None

    def whole(self, second: bool = False):
        """y and the gradients with everything kept, and what is drawn afterwards; `second`: with the masks after it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if second:
                block(self.weights, self.dropout, *self.inputs)
                torch.rand(3)
            inputs, weights = ([t.clone().requires_grad_() for t in ts] for ts in (self.inputs, self.weights))
            y = block(weights, self.dropout, *inputs)
            drawn = [torch.rand(3), torch.rand(3)]
            y.backward(self.later * self.dy)
        return y.detach(), [t.grad for t in (*inputs, *weights)], drawn

    def agrees(self, student):
        got_y, grads, calls, kept, drawn = self.run(student)
        y, right, draws = self.whole()
        again = self.whole(second=True)[1]
        setting = f"dropout {self.dropout:g}"
        checks.close(got_y, y, name=f"{setting}: the output", why="Calling f itself gives this.")
        for name, got, expected, other in zip(
            (*self.names, "the first weights", "the second weights"), grads, right, again, strict=True
        ):
            checks.that(
                got is not None,
                f"{setting}: {name} {'have' if 'weights' in name else 'has'} no gradient. "
                + (
                    "torch.autograd.backward(y, dy) adds to the gradients of the weights that f uses, too; "
                    "torch.autograd.grad does not."
                    if "weights" in name
                    else "Return one for each input, after the None for f."
                ),
            )
            mistakes = {
                "The second pass draws other random numbers: its dropout mask is not the first one's. Set the "
                "generator back.": other,
                "The gradient is added twice.": 2 * expected,
                FIRST: expected / self.later,
            }
            if not self.dropout:
                mistakes.pop(next(iter(mistakes)))
            checks.close(got, expected, name=f"{setting}: the gradient of {name}", mistakes=mistakes, rtol=1e-12)
        return calls, kept, drawn, draws


@exercise.check(points=5, seconds=SECONDS)
def as_if_it_were_kept(student, rng):
    "Output and gradients of the inputs and of f's weights, as if everything were kept."
    for later, others in ((1.0, 1), (1.0, 0), (3.0, 2)):
        (forward, both), *_ = Pass(rng, 0.0, later, others).agrees(student)
        if both <= forward:
            said = f"All calls of f ({show.show(both)}) are in the forward pass: backward must call f again."
            raise checks.CheckFailure(said, mistake=KEPT)


@exercise.check(points=3, needs="as_if_it_were_kept", seconds=SECONDS)
def keeps_its_inputs_alone(student, rng):
    "Between the passes only the inputs are kept, and changing them is an error; f is called once in each pass."
    calls, kept, *_ = Pass(rng, 0.0).agrees(student)
    inner = ROWS * HIDDEN * 8
    if type(kept) is not int or not 0 <= kept <= inner // 2:
        raise checks.CheckFailure(
            f"Between the passes {kept} bytes are kept next to inputs and output.",
            got=f"{kept} bytes",
            expected="0: the inputs exist anyway",
            mistake=COPIED if kept == ROWS * (WIDE + HIDDEN) * 8 else KEPT if type(kept) is int and kept > 0 else "",
        )
    checks.that(
        calls == (1, 2),
        f"f is called {show.show(calls[0])} times in the forward pass and {show.show(calls[1])} in all, expected 1 and "
        "2.",
    )
    notices_a_change(student, Pass(rng, 0.0))


def notices_a_change(student, given: Pass) -> None:
    """An input that is changed between the passes is an error; one that is not has its gradient."""

    def passes(which: int, factor: float):
        arguments = given.weights[0], *given.inputs, which, factor
        return student.ranks("Checkpointed", 1, lambda rank: arguments, harness="spoiled").results[0]

    error, *got = passes(0, 1.0)
    checks.that(
        error == "", f"No input is changed between the passes, and the backward pass raises {show.show(error)}."
    )
    x, z, weight = (t.clone().requires_grad_() for t in (*given.inputs, given.weights[0]))
    right = torch.autograd.grad((torch.tanh(x @ weight.T) * z).sum(), (x, z, weight))
    for name, grad, expected in zip(("x", "z", "the weights"), got, right, strict=True):
        checks.close(grad, expected, name=f"f with one product: the gradient of {name}")
    for which, name in enumerate("xz"):
        heard, *_ = passes(which, 2.0)
        checks.that(
            "modified by an inplace operation" in heard,
            f"{name} is changed in place between the passes, and the backward pass says nothing: its gradients are "
            f"silently those of another {name}. ctx.save_for_backward(*inputs) notices; an attribute of ctx does not.",
            got=heard or "no error",
            expected="autograd's error: modified by an inplace operation",
        )


@exercise.check(points=2, needs="as_if_it_were_kept", seconds=SECONDS)
def the_same_dropout(student, rng):
    "The second pass has the dropout mask of the first."
    for dropout in (0.5, 0.2):
        Pass(rng, dropout).agrees(student)


@exercise.check(points=2, needs="the_same_dropout", seconds=SECONDS)
def chance_goes_on(student, rng):
    "After both passes the generator is in the state that it would have without a second pass."
    *_, drawn, draws = Pass(rng, 0.5).agrees(student)
    for when, got, expected in zip(("forward", "backward"), drawn, draws, strict=True):
        mistakes = {
            "These are the numbers after the forward pass: you set the generator back and left it there. The next "
            "layers would repeat earlier masks.": draws[0]
        }
        mistakes = mistakes if when == "backward" else {}
        checks.close(got, expected, name=f"what torch.rand gives after {when}", mistakes=mistakes)


def cost(chosen, seconds) -> float:
    return sum(seconds[i] for i in chosen)


def fewest_seconds(nbytes, seconds, budget) -> float:
    """Of all 2^L sets."""
    sizes, times = torch.tensor(nbytes), torch.tensor(seconds, dtype=torch.float64)
    again = (torch.arange(2 ** len(nbytes))[:, None] >> torch.arange(len(nbytes))) & 1
    fits = ((1 - again) * sizes).sum(1) <= budget
    return float((again * times).sum(1)[fits].min())


def fewest_layers(nbytes, budget) -> int:
    """How many layers have to be recomputed at least: the largest first."""
    return next(k for k in range(len(nbytes) + 1) if sum(sorted(nbytes)[: len(nbytes) - k]) <= budget)


def greedy(nbytes, seconds, budget, key) -> set[int]:
    chosen: set[int] = set()
    for i in sorted(range(len(nbytes)), key=key):
        if sum(nbytes) - sum(nbytes[j] for j in chosen) > budget:
            chosen.add(i)
    return chosen


EXACT = ([5, 5], [1.0, 1.0], 10)  # nothing to recompute: neither greedy nor with the fewest layers is it wrong
SEVERAL = ([50, 25, 25], [10.0, 1.0, 1.0], 50)  # one layer alone would do, and two cost less
TRAP = ([60, 50, 50], [3.0, 2.6, 2.6], 100)  # one layer is cheaper than the two with more bytes for their time
TOO_MUCH = ([10, 50], [0.125, 2.0], 12)  # the cheapest byte first recomputes a layer that is not needed


@exercise.check(points=3)
def cheapest_plan(student, rng):
    "plan: of all sets of layers that meet the budget, the one that costs the fewest seconds."
    cases = [([10, 60], [5.0, 1.0], 12), EXACT, TRAP, SEVERAL, TOO_MUCH, ([5, 5], [1.0, 2.0], 0)]
    for n in (3, 5, 7, 8):
        nbytes = torch.randint(1, 60, (n,), generator=rng).tolist()
        seconds = (torch.randint(1, 40, (n,), generator=rng) / 4).tolist()
        cases.append((nbytes, seconds, int(sum(nbytes) * float(torch.rand((), generator=rng)))))
    for nbytes, seconds, budget in cases:
        got, call = student.plan(list(nbytes), list(seconds), budget), f"plan({nbytes}, {seconds}, {budget})"
        checks.that(
            type(got) in (set, frozenset) and got <= set(range(len(nbytes))),
            f"{call} is {show.show(got, 80)}, expected a set of numbers of layers.",
        )
        kept = sum(size for i, size in enumerate(nbytes) if i not in got)
        best = fewest_seconds(nbytes, seconds, budget)
        inverse = set(range(len(nbytes))) - got
        checks.that(
            kept <= budget,
            f"{call} recomputes {got or 'nothing'}, and the others keep {kept} bytes, more than the budget."
            + (
                " These are the layers to keep: return the others."
                if sum(nbytes[i] for i in got) <= budget and abs(cost(inverse, seconds) - best) < 1e-9
                else ""
            ),
        )
        if cost(got, seconds) > best + 1e-9:
            ways = (lambda i, n=nbytes, s=seconds: s[i] / n[i], lambda i, n=nbytes: -n[i], lambda i, s=seconds: s[i])
            is_greedy = any(got == greedy(nbytes, seconds, budget, key) for key in ways)
            raise checks.CheckFailure(
                f"{call} recomputes {got} in {cost(got, seconds):g} s.",
                got=f"{cost(got, seconds):g} s",
                expected=f"{best:g} s",
                why="This is the cheapest of all sets that fit.",
                mistake="Neither taking the best layer first nor taking the fewest layers always gives the "
                "cheapest set: compare the seconds of all sets that fit."
                if is_greedy or len(got) == fewest_layers(nbytes, budget)
                else "At most budget bytes: exactly budget fits, too."
                if abs(cost(got, seconds) - fewest_seconds(nbytes, seconds, budget - 1)) < 1e-9
                else "",
            )
