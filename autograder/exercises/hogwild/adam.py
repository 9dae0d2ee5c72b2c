"""A gradient, or its factors. Oracles: autograd, the bytes of the tensors themselves, the trace."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise
from autograder.checks.messages import SECONDS, sends
from autograder.exercises.drawing import whole_number
from autograder.exercises.ready_made import MACHINES_COLLECTIVES, RANKS
from autograder.exercises.under_way import waited_for

exercise = Exercise(
    "adam",
    points=20,
    minutes=20,
    functions=("from_factors", "fc_bytes", "cheaper", "sum_on_server"),
    forbid=(*MACHINES_COLLECTIVES, *RANKS),
    instead="Each worker sends the server its own part, by send and recv.",
)

VGG = {  # batches of equal bytes
    f"VGG-16's fc{i}": sizes for i, sizes in enumerate([(25088, 4096, 3521), (4096, 4096, 2048), (4096, 1000, 804)], 6)
}


@exercise.check(points=3)
def the_gradient_from_its_factors(student, rng):
    "from_factors: the gradient that backpropagation computes, summed over the batch."
    for batch, m, n in ((4, 3, 5), (1, 6, 2), (7, 4, 4)):
        x = torch.randn(batch, m, generator=rng).double()
        weight = torch.randn(m, n, generator=rng).double().requires_grad_()
        delta = torch.randn(batch, n, generator=rng).double()
        (right,) = torch.autograd.grad(x @ weight, weight, delta)
        name = f"from_factors(x, delta) of shapes {batch} x {m} and {batch} x {n}"
        got = student.from_factors(x.clone(), delta.clone())
        mistakes = {
            "Sum over the batch, do not average: if the loss is a mean, delta already has the 1/B.": right / batch,
            "W is m x n here: x.T @ delta.": right.T.contiguous(),
        }
        mistakes = {s: v for s, v in mistakes.items() if v.shape != right.shape or not torch.allclose(v, right)}
        checks.close(got, right, name=name, mistakes=mistakes)


def counted(batch: int, m: int, n: int, how: str) -> int:
    """The bytes of the tensors that are sent."""
    shapes = [(m, n)] if how == "gradient" else [(batch, m), (batch, n)]
    return sum(torch.empty(shape, device="meta").nbytes for shape in shapes)


@exercise.check(points=3)
def bytes_of_both(student, rng):
    "fc_bytes: m n numbers of 4 bytes, or B (m + n)."
    for how in ("gradient", "factors"):
        for _ in range(3):
            batch, m, n = torch.randint(2, 300, (3,), generator=rng).tolist()
            got, call = student.fc_bytes(batch, m, n, how), f'fc_bytes({batch}, {m}, {n}, "{how}")'
            right = counted(batch, m, n, how)
            mistakes = {
                "That is the number of numbers: each has 4 bytes.": right // 4,
                "The gradient is a sum over the batch: its size does not depend on the batch.": batch
                * counted(1, m, n, how),
                "Count the errors, too: n numbers for each sample.": 4 * batch * m,
                "You confuse the two: factors are x and delta.": counted(
                    batch, m, n, "factors" if how == "gradient" else "gradient"
                ),
                "Count x and delta, not their product for each sample.": 4 * batch * m * n,
                "You count x and delta for one sample: there are B samples.": 4 * (m + n),
            }
            mistakes = {s: v for s, v in mistakes.items() if v != right}
            checks.equal(got, right, name=call, mistakes=mistakes)


@exercise.check(points=3, needs="bytes_of_both")
def which_is_less(student, rng):
    "cheaper: factors below a batch of mn/(m + n): 3521, 2048 and 804 in VGG-16's three layers."
    a, b = whole_number(rng, 50, 5000), whole_number(rng, 50, 5000)
    for name, (m, n, batch) in {**VGG, "a layer": (a, b, a * b // (a + b) + 1)}.items():
        for b in (1, batch - 1, batch, batch + 1, 8192):
            got = student.cheaper(b, m, n)
            sizes = {how: counted(b, m, n, how) for how in ("gradient", "factors")}
            right = "factors" if sizes["factors"] < sizes["gradient"] else "gradient"
            if got != right or type(got) is not str:
                raise checks.CheckFailure(
                    f"cheaper({b}, {m}, {n}), {name}, is {show.show(got)}, expected {show.show(right)}: the "
                    f"gradient has {sizes['gradient']:,} bytes, the factors {sizes['factors']:,}.",
                    mistake="If both are equal, choose the gradient: the server need not compute it."
                    if sizes["factors"] == sizes["gradient"]
                    else "",
                )


CONTROL, DATA = 1, 2  # tags


class Layer:
    """A layer of m inputs and n outputs, and a batch for each worker; rank 0, the server, has none."""

    def __init__(self, batches: list[int], m: int, n: int, rng: torch.Generator, dtype=torch.float64):
        self.batches, self.m, self.n = [0, *batches], m, n
        self.x = [torch.randn(batch, m, generator=rng).to(dtype) for batch in self.batches]
        self.delta = [torch.randn(batch, n, generator=rng).to(dtype) for batch in self.batches]
        self.setting = f"m = {m}, n = {n}, batches of {', '.join(map(str, batches))}"

    def run(self, student):
        return student.ranks(
            "sum_on_server", len(self.batches), lambda rank: (self.x[rank].clone(), self.delta[rank].clone())
        )

    def has_the_sum(self, run) -> None:
        """Rank 0 returns the sum of the workers' gradients, and a worker None."""
        workers = range(1, len(self.batches))
        right = torch.stack([self.gradient(rank) for rank in workers]).sum(0)
        told = {f"That is worker {rank}'s gradient alone.": self.gradient(rank) for rank in workers}
        told["Return the sum over the workers, not the mean."] = right / len(workers)
        told = {said: g for said, g in told.items() if not torch.allclose(g, right)}
        checks.close(run.results[0], right, name=f"{self.setting}: what rank 0 returns", mistakes=told)
        for rank in workers:
            checks.that(
                run.results[rank] is None,
                f"{self.setting}: worker {rank} returns {show.show(run.results[rank])}, expected None.",
            )

    def gradient(self, rank: int) -> torch.Tensor:
        """A worker's gradient, sample by sample."""
        found = torch.zeros(self.m, self.n, dtype=self.x[0].dtype)
        for a, d in zip(self.x[rank], self.delta[rank], strict=True):
            found += torch.outer(a, d)
        return found


SETTINGS = (  # on both sides of mn / (m + n)
    ([2], 3, 4),
    ([1, 5], 3, 4),
    ([2, 1, 9], 4, 3),
    ([3, 2], 6, 2),
    ([2, 0, 4], 7, 6),  # a worker without samples
)


def settings(rng: torch.Generator) -> list[tuple[list[int], int, int]]:
    """These, and the same sizes with other batches: the server learns them from control messages only."""
    drawn = [([whole_number(rng, 0, 9) for _ in batches], m, n) for batches, m, n in SETTINGS[1:]]
    return [*SETTINGS, *drawn]


@exercise.check(points=6, seconds=SECONDS)
def the_server_has_the_sum(student, rng):
    "sum_on_server: rank 0 returns the sum of the workers' gradients, for any batches."
    for setting in settings(rng):
        layer = Layer(*setting, rng)
        layer.has_the_sum(layer.run(student))
    layer = Layer([1, 5], 3, 4, rng, torch.float32)
    layer.has_the_sum(layer.run(student))


@exercise.check(points=5, needs=("which_is_less", "the_server_has_the_sum"), seconds=SECONDS)
def control_and_data(student, rng):
    "sum_on_server: a worker sends 16 bytes of control (tag 1), and the cheaper of the two as data (tag 2)."
    for setting in settings(rng):
        layer = Layer(*setting, rng)
        run = layer.run(student)
        layer.has_the_sum(run)
        waited_for(run, layer.setting)
        answered = [event for event in sends(run) if event.rank == 0 or event.peer != 0]
        checks.that(
            not answered,
            f"{layer.setting}: only workers may send, and only to rank 0; here other ranks send or receive, too.",
        )
        for rank, batch in enumerate(layer.batches[1:], start=1):
            mine = [event for event in sends(run) if event.rank == rank]
            control = [event.nbytes for event in mine if event.tag == CONTROL]
            data = sum(event.nbytes for event in mine if event.tag == DATA)
            name = f"{layer.setting}: worker {rank}"
            checks.that(
                control == [16] and len(mine) > (batch > 0),
                f"{name} sends {len(control)} messages with tag 1, of {sum(control)} bytes, and {len(mine)} in all; "
                "expected one of 16 bytes with tag 1, the batch and the way as two int64, then the data with tag 2.",
            )
            others = sum(event.tag not in (CONTROL, DATA) for event in mine)
            checks.that(
                not others, f"{name} sends {others} messages with other tags: control has tag 1, data have tag 2."
            )
            sizes = {how: 2 * counted(batch, layer.m, layer.n, how) for how in ("gradient", "factors")}
            checks.that(
                data == min(sizes.values()),
                f"{name} sends {data} bytes of data (tag 2). Its gradient has {sizes['gradient']}, its factors have "
                f"{sizes['factors']}: send what `cheaper` says.",
            )
    both = Layer([2, 5], 6, 6, rng)  # factors, and a gradient
    checks.that(
        not student.is_right_when_garbled(rng, lambda: both.has_the_sum(both.run(student)), CONTROL),
        f"{both.setting}: rank 0 returns the right sum even if other numbers arrive with tag 1 than were sent. The "
        "control message says which batch a worker has, and whether factors or the gradient follow: read it.",
    )
