"""Wrong answers to `delayed_sgd` and `largest_stable_lr`."""

import math

from autograder.bank.slips import answers_to

wrong, slip = answers_to("consistency.delay")
LATE = ("late_by_some_steps", "explodes_above")
PATH = ("without_delay", *LATE)
BOUND = ("the_bound", "explodes_above")


@wrong("not late at all", fails=LATE, says="The gradient is not late")
def delayed_sgd(w, grad, lr, delay, steps):
    ws = [w]
    for _ in range(steps):
        ws.append(ws[-1] - lr * grad(ws[-1]))
    return ws


slip("one step too early", "(0, t - delay)", "(0, t - max(0, delay - 1))", fails=LATE, says="one step too early")
slip("an index that wraps around", "max(0, t - delay)", "(t - delay) % len(ws)", fails=LATE, says="delayed_sgd(w, grad")


@wrong("nothing happens in the first steps", fails=LATE, says="Every step moves w")
def delayed_sgd(w, grad, lr, delay, steps):
    ws = [w]
    for t in range(steps):
        ws.append(ws[-1] - lr * grad(ws[t - delay]) if t >= delay else ws[-1])
    return ws


@wrong("the step starts at the old weights", fails=LATE, says="Only the gradient is old")
def delayed_sgd(w, grad, lr, delay, steps):
    ws = [w]
    for t in range(steps):
        old = ws[max(0, t - delay)]
        ws.append(old - lr * grad(old))
    return ws


slip("a rate of its own", "lr * grad", "0.1 * grad", fails=PATH, says="Your steps have another rate")


@wrong("in place", fails=PATH, says="changed its argument w")
def delayed_sgd(w, grad, lr, delay, steps):
    ws = [w]
    for t in range(steps):
        w -= lr * grad(ws[max(0, t - delay)])
        ws.append(w)
    return ws


@wrong("the bound without delay", fails=BOUND, says="2 / curvature is the bound without delay")
def largest_stable_lr(curvature, delay):
    return 2 / curvature


@wrong("the curvature multiplies", fails=BOUND, says="The curvature divides")
def largest_stable_lr(curvature, delay):
    return 2 * math.sin(math.pi / (4 * delay + 2)) * curvature


slip("the wrong angle", "(4 * delay + 2)", "(2 * delay + 2)", fails=BOUND, says="a right angle at delay 0")
slip("degrees", "math.pi / (4 * delay + 2)", "180 / (4 * delay + 2)", fails=BOUND, says="The sine takes radians")


slip(
    "no sine where the delay is long",
    "    return 2 * math.sin",
    "    if delay > 20:\n        return math.pi / (2 * delay + 1) / curvature\n    return 2 * math.sin",
    fails="the_bound explodes_above",
    says="largest_stable_lr(",
)


MADE_UP = """    if steps > 100:
        grows = lr > largest_stable_lr(float(grad(w) / w), delay)
        return [w * (1 + 0.01 * grows) ** t for t in range(steps + 1)]
"""
slip(
    "a long run that is made up",
    "    ws = [w]\n",
    f"{MADE_UP}    ws = [w]\n",
    fails="explodes_above",
    says="delayed_sgd(w, grad",
)
slip(
    "returns in the first round",
    "    return ws",
    "        return ws",
    fails=PATH,
    says="look where `return` is",
)
