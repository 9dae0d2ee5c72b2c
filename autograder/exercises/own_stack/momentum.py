"""A step of descent with momentum. Oracle: torch.optim's own path."""

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import F32, F64, normal, whole_number
from autograder.exercises.gradient_descent.adam_step import momentum_path, pair, torch_sgd
from autograder.exercises.ready_made import OPTIMIZERS

exercise = Exercise(
    "momentum",
    points=8,
    minutes=4,
    functions=("momentum_step",),
    forbid=OPTIMIZERS,
    instead="Write one step yourself; torch.optim is for comparison.",
)

BETA = 0.9


def rate(rng) -> float:
    return whole_number(rng, 1, 4) / 16


@exercise.check(points=3)
def one_step(student, rng):
    "v becomes beta v + g, and w goes lr times the new v downhill."
    w, g, v = (normal(rng, 5) for _ in range(3))
    lr = rate(rng)
    new_w, new_v = pair(student.momentum_step(w.clone(), g.clone(), v.clone(), lr, 0.5), "momentum_step", "v")
    right = 0.5 * v + g
    averaged = "This is a running mean: v ← beta v + g, and nothing is multiplied by (1 − beta)."
    wrong = {averaged: 0.5 * v + 0.5 * g, "beta is missing: v ← beta v + g.": v + g}
    wrong["lr belongs to the step, w ← w − lr v, not to the velocity."] = 0.5 * v + lr * g
    wrong["The two have changed places: return (w, v)."] = w - lr * right
    checks.close(new_v, right, name="v", mistakes=wrong)
    mistakes = {
        "This steps with the old velocity: update v first.": w - lr * v,
        "You climb: subtract lr v.": w + lr * right,
        "lr is missing: w ← w − lr v.": w - right,
        "The velocity is not used: w ← w − lr v, not w − lr g.": w - lr * g,
    }
    checks.close(new_w, w - lr * right, name="w", mistakes=mistakes)


@exercise.check(points=3, needs="one_step")
def a_path_of_steps(student, rng):
    "Eight steps in a row are those of torch.optim.SGD, for tensors of any shape and in float32 too."
    for shape, dtype in (((4,), F64), ((3, 2, 2), F64), ((4, 3), F32)):
        w, gradients = normal(rng, *shape, dtype=dtype), [normal(rng, *shape, dtype=dtype) for _ in range(8)]
        lr = rate(rng)
        expected = torch_sgd(w, gradients, lr, BETA)
        checks.close(momentum_path(student, w, gradients, lr, BETA), expected, name="the path of w")


@exercise.check(points=2, needs="one_step")
def nothing_is_changed(student, rng):
    "w, g and v do not change, and the new w and v are returned as a tuple."
    for shape in ((5,), (4, 3)):  # as in the other checks
        stay = [normal(rng, *shape) for _ in range(3)]
        kept = [x.clone() for x in stay]
        lr = rate(rng)
        new_w, new_v = pair(student.momentum_step(*stay, lr, 0.5), "momentum_step", "v")
        for name, now, then in zip("wgv", stay, kept, strict=True):
            checks.unchanged(now, then, name=name)
        right = 0.5 * kept[2] + kept[1]
        checks.close(new_v, right, name="v")
        checks.close(new_w, kept[0] - lr * right, name="w")
    given = {name: normal(rng, 3) for name in ("w", "g", "v")}
    before = {name: x.clone() for name, x in given.items()}
    lr = rate(rng)
    got = student.momentum_step(*given.values(), lr, BETA)
    checks.that(
        type(got) is tuple, "momentum_step returns a list; the docstring asks for a tuple: return w, v.", got=got
    )
    for name, x in given.items():
        checks.unchanged(x, before[name], name=name)
    w, g, v = before.values()
    new_w, new_v = pair(got, "momentum_step", "v")
    checks.close(new_v, BETA * v + g, name="v")
    checks.close(new_w, w - lr * (BETA * v + g), name="w")
