"""The chain rule for n inner functions of m variables. Oracle: autograd of the whole composition."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.calculus.drawing import uniform
from autograder.exercises.calculus.functions import autograd
from autograder.exercises.ready_made import BY_HAND, DERIVATIVES

exercise = Exercise("chain_gradient", points=5, minutes=5, forbid=DERIVATIVES, instead=BY_HAND)


@exercise.check(points=3)
def two_by_two(student, rng):
    "f(x1(s,t), x2(s,t)): both partial derivatives of the lecture's example."
    st = uniform(0.5, 1.5, (2,), rng)

    def inner(st):
        return torch.stack((st[0] ** 2 * st[1], torch.sin(st[0]) + 3 * st[1]))

    def outer(x):
        return x[0] * torch.exp(x[1] / 4)

    df_dx, dx_ds = autograd(outer, inner(st)), torch.autograd.functional.jacobian(inner, st)
    got = student.chain_gradient(df_dx.clone(), dx_ds.clone())
    not_the_single_terms(got, 2, 2)
    mistakes = {
        "You use the rows of the Jacobian: entry j sums over i, Σ_i df/dx_i · dx_i/ds_j (column j).": dx_ds @ df_dx,
        "You summed the derivatives of x before multiplying: multiply pairwise, then add.": df_dx * dx_ds.sum(0),
        "Only the diagonal is used: f depends on s through every x_i.": df_dx * dx_ds.diagonal(),
    }
    why = "f = x1 e^(x2/4) with x1 = s²t and x2 = sin s + 3t; oracle: autograd of the whole."
    expected = autograd(lambda st: outer(inner(st)), st)
    checks.close(got, expected, name="chain_gradient(df_dx, dx_ds)", why=why, mistakes=mistakes)


@exercise.check(points=2)
def any_sizes(student, rng):
    "n inner functions of m variables, n and m from 1 on."
    for n, m in ((3, 5), (5, 3), (4, 1), (1, 4), (1, 1)):
        df_dx, dx_ds = uniform(-1, 1, (n,), rng), uniform(-1, 1, (n, m), rng)
        given = df_dx.clone(), dx_ds.clone()
        got = student.chain_gradient(*given)
        not_the_single_terms(got, n, m)
        checks.close(got, (df_dx.reshape(n, 1) * dx_ds).sum(0), name=f"chain_gradient for n = {n}, m = {m}")
        for value, before, name in zip(given, (df_dx, dx_ds), ("df_dx", "dx_ds"), strict=True):
            checks.unchanged(value, before, name=name)


def not_the_single_terms(got, n: int, m: int) -> None:
    checks.that(
        not (type(got) is torch.Tensor and tuple(got.shape) == (n, m)),
        f"For n = {n}, m = {m} the result has shape ({n}, {m}): these are the single terms. Add them up over i.",
        got=got,
        expected=f"shape ({m},)",
    )
