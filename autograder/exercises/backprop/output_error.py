"""The error of the last layer, ∂C/∂z. Oracle: σ' by autograd."""

import torch

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.backprop.networks import ACTIVATION
from autograder.exercises.backprop.oracles import slope
from autograder.exercises.drawing import F64, normal
from autograder.exercises.ready_made import DERIVATIVES

exercise = Exercise(
    "output_error",
    points=5,
    minutes=6,
    offers=ACTIVATION,
    forbid=DERIVATIVES,
    instead="Write the backward pass yourself, with the four equations and without autograd.",
)


def output_mistakes(a, y, z) -> dict:
    s = slope(z)
    return {
        "σ'(z) is missing: the error is with respect to z, so multiply ∇ₐC = a − y by the slope of σ.": a - y,
        "The sign is wrong: ∂C/∂a = a − y, in this order.": (y - a) * s,
        "You multiplied by σ(z) instead of its derivative σ'(z) = σ(z) (1 − σ(z)).": (a - y) * a,
        "There is a factor 2 too much: C has a factor ½, so ∂C/∂a = a − y.": 2 * (a - y) * s,
        "This squares the difference: ∂C/∂a of ½ (y − a)² is a − y.": (a - y) ** 2 * s,
        "σ' was taken at a: take it at z (or use a (1 − a), which is the same).": (a - y) * slope(a),
    }


def check_output(student, a, y, z):
    got = student.output_error(a.clone(), y.clone(), z.clone())
    why = "δᴸ = (a − y) ⊙ σ'(z), one number for each neuron."
    if type(got) in (float, int) or (type(got) is torch.Tensor and got.dim() == 0 and z.dim() > 0):
        checks.fail("You took the sum: δᴸ has one entry for each neuron of the last layer.", got=got, why=why)
    expected = (a.double() - y.double()) * slope(z.double())
    checks.close(got, expected.to(z.dtype), name="output_error(a, y, z)", why=why, mistakes=output_mistakes(a, y, z))


@exercise.check(points=3)
def error_of_the_output(student, rng):
    "δᴸ is the derivative of C = ½ |y − a|² with respect to z."
    for n in (1, 3, 5):
        z, y = normal(rng, n), torch.rand(n, generator=rng, dtype=F64)
        check_output(student, torch.sigmoid(z), y, z)


@exercise.check(points=1)
def error_of_a_batch(student, rng):
    "It works elementwise: for a batch (N, n) as for one sample."
    for shape, dtype in (((4, 3), F64), ((1, 2), F64), ((7, 5), torch.float32)):
        z, y = normal(rng, *shape, dtype=dtype), torch.rand(*shape, generator=rng, dtype=F64).to(dtype)
        check_output(student, torch.sigmoid(z), y, z)
    a = torch.sigmoid(z)
    got = checks.leaves_alone(student.output_error, a=a, y=y, z=z)
    checks.close(got, (a - y) * slope(z), name="output_error(a, y, z)", mistakes=output_mistakes(a, y, z))


@exercise.check(points=1)
def error_far_out(student, rng):
    "At z = ±1000 the error is 0, not NaN."
    for dtype in (F64, torch.float32):
        y, near = torch.rand(3, generator=rng, dtype=F64), 2 * torch.rand((), generator=rng, dtype=F64) - 1
        z, a = torch.stack([near + 1000, near - 1000, near]), torch.sigmoid(near)
        expected = torch.stack([0 * near, 0 * near, (a - y[2]) * a * (1 - a)])
        y, z = y.to(dtype), z.to(dtype)
        got = student.output_error(torch.sigmoid(z), y.clone(), z.clone())
        why = "Far from 0 the curve σ is flat, so σ' is 0. Write σ' as σ(z) (1 − σ(z)): exp(z) alone overflows."
        checks.close(got, expected.to(dtype), name="output_error(a, y, z) at z of 1000, -1000 and near 0", why=why)
