"""Wrong answers to `momentum_step` and `adam_step`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.adam_step")


@wrong("momentum in the wrong order", fails=("momentum_equals_torch", "steps_change_nothing_else"), says="old velocity")
def momentum_step(w, g, v, lr, beta):
    return w - lr * v, beta * v + g


slip(
    "momentum as a running mean",
    "v = beta * v + g",
    "v = beta * v + (1 - beta) * g",
    fails=("momentum_equals_torch", "steps_change_nothing_else"),
    says="scale the gradient",
)


ADAM = ("adam_first_step", "adam_equals_torch", "steps_change_nothing_else")


@wrong("no bias correction", fails=ADAM, says="bias correction is missing")
def adam_step(w, g, state, lr):
    m = 0.9 * state["m"] + 0.1 * g
    v = 0.999 * state["v"] + 0.001 * g**2
    return w - lr * m / (v.sqrt() + 1e-8), {"t": state["t"] + 1, "m": m, "v": v}


@wrong("counts steps from 0", fails=ADAM, says="expected a finite number")
def adam_step(w, g, state, lr):
    t = state["t"]
    m = 0.9 * state["m"] + 0.1 * g
    v = 0.999 * state["v"] + 0.001 * g**2
    return w - lr * m / (1 - 0.9**t + 0 * m) / ((v / (1 - 0.999**t + 0 * v)).sqrt() + 1e-8), {
        "t": t + 1,
        "m": m,
        "v": v,
    }


slip(
    "epsilon inside the root",
    "m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)\n"
    '    return w - lr * m_hat / (v_hat.sqrt() + 1e-8), {"t": t, "m": m, "v": v}',
    'return w - lr * m / (1 - 0.9**t) / (v / (1 - 0.999**t) + 1e-8).sqrt(), {"t": t, "m": m, "v": v}',
    fails=ADAM,
    says="outside the root",
)


@wrong("changes the state in place", fails="steps_change_nothing_else", says="argument state")
def adam_step(w, g, state, lr):
    state["t"] += 1
    state["m"] = 0.9 * state["m"] + 0.1 * g
    state["v"] = 0.999 * state["v"] + 0.001 * g**2
    m_hat, v_hat = state["m"] / (1 - 0.9 ** state["t"]), state["v"] / (1 - 0.999 ** state["t"])
    return w - lr * m_hat / (v_hat.sqrt() + 1e-8), state


slip(
    "changes the velocity in place",
    "v = beta * v + g\n",
    "v = v.mul_(beta).add_(g)\n",
    fails="steps_change_nothing_else",
    says="changed its argument v",
)
slip(
    "keeps the velocity to itself",
    "return w - lr * v, v",
    "return w - lr * v",
    fails="momentum_equals_torch steps_change_nothing_else",
    says="must return two things",
)
slip(
    "keeps the corrected means",
    '"m": m, "v": v}',
    '"m": m_hat, "v": v_hat}',
    fails="adam_equals_torch steps_change_nothing_else",
    says="You keep the corrected m and v",
)
slip(
    "forgets m and v after the second step",
    '"m": m, "v": v}',
    '"m": m * (state["t"] != 2 or lr != 0.1), "v": v}',
    fails="steps_change_nothing_else",
    says="state['m'] after adam_step",
)
slip(
    "writes into the state after three steps",
    """    return w - lr * m_hat / (v_hat.sqrt() + 1e-8), {"t": t, "m": m, "v": v}""",
    """    if t > 3:\n        m, v = state["m"].copy_(m), state["v"].copy_(v)\n"""
    """    return w - lr * m_hat / (v_hat.sqrt() + 1e-8), {"t": t, "m": m, "v": v}""",
    fails="steps_change_nothing_else",
    says="changed its argument state",
)
