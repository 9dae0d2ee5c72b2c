"""A step with momentum and a step of Adam. Oracle: torch.optim.

Its functional forms are what runs: its classes bring in torch's compiler, a second at the first check.
"""

import torch
from torch.optim.adam import adam as torch_adam_update
from torch.optim.sgd import sgd as torch_sgd_update

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.drawing import F32, F64, normal
from autograder.exercises.gradient_descent.drawing import integer, small
from autograder.exercises.ready_made import OPTIMIZERS

exercise = Exercise(
    "adam_step",
    points=15,
    minutes=12,
    functions=("momentum_step", "adam_step"),
    forbid=OPTIMIZERS,
    instead="Write the step yourself; the optimizers of torch.optim are only for comparison.",
)


def torch_sgd(w0, gradients, lr, momentum=0.0, nesterov=False):
    """The path of torch.optim.SGD over given gradients."""
    w, path = w0.clone(), [w0]
    buffers: list[torch.Tensor | None] = [None]
    settings = {"lr": lr, "momentum": momentum, "nesterov": nesterov}
    for g in gradients:
        torch_sgd_update([w], [g], buffers, weight_decay=0.0, dampening=0.0, maximize=False, foreach=False, **settings)
        path.append(w.clone())
    return torch.stack(path)


def torch_adam(w0, gradients, lr):
    """The path of torch.optim.Adam over given gradients, with its defaults."""
    w, m, v, t, path = w0.clone(), torch.zeros_like(w0), torch.zeros_like(w0), torch.tensor(0.0), [w0]
    settings = {"lr": lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
    for g in gradients:
        torch_adam_update([w], [g], [m], [v], [], [t], amsgrad=False, maximize=False, foreach=False, **settings)
        path.append(w.clone())
    return torch.stack(path)


def pair(value, name, second):
    checks.that(
        type(value) in (tuple, list) and len(value) == 2,
        f"{name} must return two things, (w, {second}).",
        got=value,
    )
    return value


def momentum_path(student, w, gradients, lr, beta):
    v, path = torch.zeros_like(w), [w]
    for g in gradients:
        w, v = pair(student.momentum_step(w, g, v, lr, beta), "momentum_step", "v")
        checks.tensor(w, name="w", shape=g.shape, dtype=g.dtype)
        checks.tensor(v, name="v", shape=g.shape, dtype=g.dtype)
        path.append(w)
    return torch.stack(path)


def fresh_state(w):
    return {"t": 0, "m": torch.zeros_like(w), "v": torch.zeros_like(w)}


def adam_path(student, w, gradients, lr):
    state, path = fresh_state(w), [w]
    for g in gradients:
        w, state = pair(student.adam_step(w, g, state, lr), "adam_step", "state")
        checks.tensor(w, name="w", shape=g.shape, dtype=g.dtype)
        checks.that(type(state) is dict, "The state must be a dict with t, m and v.", got=state)
        path.append(w)
    return torch.stack(path)


def late_velocity_path(w, gradients, lr, beta):
    """The mistake of stepping with the velocity before it is updated."""
    v, path = torch.zeros_like(w), [w]
    for g in gradients:
        w, v = w - lr * v, beta * v + g
        path.append(w)
    return torch.stack(path)


def momentum_mistakes(w0, gradients, lr, beta):
    def sgd(lr, **settings):
        return torch_sgd(w0, gradients, lr, **settings)

    return {
        "You step with the old velocity: first v = beta * v + g, then w = w - lr * v.": late_velocity_path(
            w0, gradients, lr, beta
        ),
        "You scale the gradient by (1 - beta): here v = beta * v + g, as in torch.optim.SGD.": sgd(
            lr * (1 - beta), momentum=beta
        ),
        "This is plain descent, without momentum: keep beta times the last velocity.": sgd(lr),
        "This is Nesterov's momentum: here the step is lr * v.": sgd(lr, momentum=beta, nesterov=True),
        "You climb: subtract the velocity, w - lr * v.": 2 * w0 - sgd(lr, momentum=beta),
    }


@exercise.check(points=5)
def momentum_equals_torch(student, rng):
    "momentum_step equals torch.optim.SGD(momentum=beta), for 3 steps and for 100."
    for steps, d, dtype in ((3, 1, F64), (100, 5, F64), (10, 5, F32)):
        draw = small if d == 1 else normal
        w0, gradients = draw(rng, d, dtype=dtype), draw(rng, steps, d, dtype=dtype)
        lr, beta = integer(rng, 1, 4) / 16, integer(rng, 10, 14) / 16
        checks.close(
            momentum_path(student, w0, gradients, lr, beta),
            torch_sgd(w0, gradients, lr, momentum=beta),
            name="path",
            why="The path from w0 over the steps, with v = 0 at first.",
            mistakes=momentum_mistakes(w0, gradients, lr, beta),
        )


def adam_variant(w, gradients, lr, *, correct=True, inside=False, kept=False, b1=0.9, b2=0.999, eps=1e-8):
    """Adam with a known mistake, to recognise it."""
    m, v, path = torch.zeros_like(w), torch.zeros_like(w), [w]
    for t, g in enumerate(gradients, start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        m_hat, v_hat = (m / (1 - b1**t), v / (1 - b2**t)) if correct else (m, v)
        m, v = (m_hat, v_hat) if kept else (m, v)
        w = w - lr * m_hat / ((v_hat + eps).sqrt() if inside else v_hat.sqrt() + eps)
        path.append(w)
    return torch.stack(path)


def adam_mistakes(w, gradients, lr):
    return {
        "The bias correction is missing: divide m by 1 - 0.9**t and v by 1 - 0.999**t.": lambda: adam_variant(
            w, gradients, lr, correct=False
        ),
        "Epsilon belongs outside the root: sqrt(v_hat) + eps.": lambda: adam_variant(w, gradients, lr, inside=True),
        "You keep the corrected m and v: the new state holds the uncorrected ones.": lambda: adam_variant(
            w, gradients, lr, kept=True
        ),
        "The betas are swapped: 0.9 belongs to m, 0.999 to v.": lambda: adam_variant(
            w, gradients, lr, b1=0.999, b2=0.9
        ),
        "You climb: subtract the step.": lambda: 2 * w - adam_variant(w, gradients, lr),
    }


@exercise.check(points=3)
def adam_first_step(student, rng):
    "Adam's first step moves every weight by lr, for every size of its gradient."
    w, lr = small(rng, 4), 0.01
    g = torch.tensor([1e3, -1.0, 1e-3, -20.0], dtype=F64) * integer(rng, 1, 9)
    stepped, state = pair(student.adam_step(w.clone(), g, fresh_state(w), lr), "adam_step", "state")
    checks.close(
        stepped,
        torch_adam(w, g[None], lr)[1],
        name="w",
        why="After one step m / (1 - 0.9) = g and v / (1 - 0.999) = g^2, so the step is lr * g / |g|.",
        mistakes={
            sentence: lambda value=value: value()[1] for sentence, value in adam_mistakes(w, g[None], lr).items()
        },
    )
    checks.that(type(state) is dict and {"t", "m", "v"} <= set(state), "The state must hold t, m and v.", got=state)
    checks.close(state["t"], 1, name="state['t'] after the first step")


@exercise.check(points=5)
def adam_equals_torch(student, rng):
    "adam_step equals torch.optim.Adam for 100 steps, tiny gradients included."
    for steps, scale, dtype in ((3, 1.0, F64), (100, 1.0, F64), (20, 1e-7, F64), (20, 1.0, F32)):
        w0, gradients, lr = normal(rng, 6, dtype=dtype), scale * normal(rng, steps, 6, dtype=dtype), 0.05
        checks.close(
            adam_path(student, w0, gradients, lr),
            torch_adam(w0, gradients, lr),
            name="path",
            why="Betas 0.9 and 0.999, eps = 1e-8.",
            mistakes=adam_mistakes(w0, gradients, lr),
        )


@exercise.check(points=2, needs=("momentum_equals_torch", "adam_equals_torch"))
def steps_change_nothing_else(student, rng):
    "Both steps return new values and do not change their arguments."
    for t, dtype in ((2, F64), (0, F32), (integer(rng, 3, 99), F64)):
        changes_nothing(student, rng, t, integer(rng, 1, 6), dtype)


def changes_nothing(student, rng, t: int, d: int, dtype) -> None:
    """Check both steps after t steps, on weights (d,): arguments and results."""
    w, g, v, m, squares = (normal(rng, d, dtype=dtype) for _ in range(5))
    moments = {"m": m, "v": squares**2}
    state = {"t": t, **moments}
    before = [t.clone() for t in (w, g, v)], {"t": t} | {k: x.clone() for k, x in moments.items()}
    moved = student.momentum_step(w, g, v, 0.1, 0.9)
    for value, old, name in zip((w, g, v), before[0], "wgv", strict=True):
        checks.unchanged(value, old, name=name)
    stepped = student.adam_step(w, g, state, 0.1)
    checks.unchanged(w, before[0][0], name="w")
    checks.unchanged(g, before[0][1], name="g")
    checks.unchanged(state, before[1], name="state")
    velocity = 0.9 * v + g
    for got, right, name in zip(pair(moved, "momentum_step", "v"), (w - 0.1 * velocity, velocity), "wv", strict=True):
        checks.close(got, right, name=f"{name} of momentum_step(w, g, v, 0.1, 0.9)")
    got, new = pair(stepped, "adam_step", "state")
    m, v = 0.9 * moments["m"] + 0.1 * g, 0.999 * moments["v"] + 0.001 * g**2
    right = w - 0.1 * m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8)
    checks.close(got, right, name=f"w of adam_step(w, g, state, 0.1) with t = {t} in state")
    checks.that(type(new) is dict and {"t", "m", "v"} <= set(new), "The state must hold t, m and v.", got=new)
    for key, expected in {"t": t + 1, "m": m, "v": v}.items():
        name = f"state[{key!r}] after adam_step(w, g, state, 0.1) with t = {t} in state"
        checks.close(new[key], expected, name=name)
