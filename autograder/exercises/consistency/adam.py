"""A gradient, or what it is made of. Oracles: autograd, and the bytes of the tensors themselves."""

import torch

from autograder import checks, show
from autograder.authoring import Exercise

exercise = Exercise("adam", points=10, minutes=8, functions=("from_factors", "fc_bytes", "cheaper"))

VGG = {"fc6": (25088, 4096, 3521), "fc7": (4096, 4096, 2048), "fc8": (4096, 1000, 804)}  # batches of equal bytes


@exercise.check(points=3)
def the_gradient_from_its_factors(student, rng):
    "from_factors: it is the gradient that backpropagation has, summed over the batch."
    for batch, m, n in ((4, 3, 5), (1, 6, 2), (7, 4, 4)):
        x = torch.randn(batch, m, generator=rng).double()
        weight = torch.randn(m, n, generator=rng).double().requires_grad_()
        delta = torch.randn(batch, n, generator=rng).double()
        (right,) = torch.autograd.grad(x @ weight, weight, delta)
        name = f"from_factors(x, delta) of shapes {batch} x {m} and {batch} x {n}"
        got = student.from_factors(x.clone(), delta.clone())
        mistakes = {
            "The sum over the batch, not its mean: whose loss is a mean has the 1/B in delta.": right / batch,
            "W is m x n here: x.T @ delta.": right.T.contiguous(),
        }
        mistakes = {s: v for s, v in mistakes.items() if v.shape != right.shape or not torch.allclose(v, right)}
        checks.close(got, right, name=name, mistakes=mistakes)


def counted(batch: int, m: int, n: int, how: str) -> int:
    """The bytes of the tensors that are sent."""
    shapes = [(m, n)] if how == "gradient" else [(batch, m), (batch, n)]
    return sum(torch.empty(shape, device="meta").nbytes for shape in shapes)


@exercise.check(points=4)
def bytes_of_both(student, rng):
    "fc_bytes: m n numbers of 4 bytes, or B (m + n)."
    for how in ("gradient", "factors"):
        for _ in range(3):
            batch, m, n = torch.randint(2, 300, (3,), generator=rng).tolist()
            got, call = student.fc_bytes(batch, m, n, how), f'fc_bytes({batch}, {m}, {n}, "{how}")'
            right = counted(batch, m, n, how)
            mistakes = {
                "That is how many numbers there are: each has 4 bytes.": right // 4,
                "The gradient is summed over the batch: its size does not depend on it.": batch * counted(1, m, n, how),
                "Errors have n numbers for each sample, and have to travel, too.": 4 * batch * m,
                "That is the other one: factors are x and delta.": counted(
                    batch, m, n, "factors" if how == "gradient" else "gradient"
                ),
                "x and delta are sent, not their product for each sample.": 4 * batch * m * n,
                "x and delta for one sample: there are B of them.": 4 * (m + n),
            }
            mistakes = {s: v for s, v in mistakes.items() if v != right}
            checks.equal(got, right, name=call, mistakes=mistakes)


@exercise.check(points=3, needs="bytes_of_both")
def which_is_less(student, rng):
    "cheaper: factors below a batch of mn/(m + n): 3521, 2048 and 804 in VGG-16's three layers."
    for name, (m, n, batch) in VGG.items():
        for b in (1, batch - 1, batch, batch + 1, 8192):
            got = student.cheaper(b, m, n)
            sizes = {how: counted(b, m, n, how) for how in ("gradient", "factors")}
            right = "factors" if sizes["factors"] < sizes["gradient"] else "gradient"
            if got != right or type(got) is not str:
                raise checks.CheckFailure(
                    f"cheaper({b}, {m}, {n}), VGG-16's {name}, is {show.show(got)}, expected {show.show(right)}: the "
                    f"gradient has {sizes['gradient']:,} bytes, the factors {sizes['factors']:,}.",
                    mistake="Where both are equal it is the gradient, which the server need not compute."
                    if sizes["factors"] == sizes["gradient"]
                    else "",
                )
