"""Wrong answers to `momentum_step`."""

from autograder.bank.own_stack.later import AFTER_THE_LOSS
from autograder.bank.slips import answers_to

wrong, slip = answers_to("own_stack.momentum")
FIRST = ("one_step", "a_path_of_steps", "nothing_is_changed")

slip("uphill", "w - lr * v", "w + lr * v", fails=(*FIRST, *AFTER_THE_LOSS), says="You climb: subtract lr v")


@wrong("a running mean", fails=(*FIRST, *AFTER_THE_LOSS), says="This is a running mean")
def momentum_step(w, g, v, lr, beta):
    v = beta * v + (1 - beta) * g
    return w - lr * v, v


@wrong("the old velocity", fails=(*FIRST, *AFTER_THE_LOSS), says="update v first")
def momentum_step(w, g, v, lr, beta):
    return w - lr * v, beta * v + g


slip("changes v in place", "v = beta * v + g", "v *= beta\n    v += g", fails=("nothing_is_changed",), says="v")
slip(
    "changes v in place, unless it has three numbers",
    "    v = beta * v + g\n",
    "    if v.shape == (3,):\n        v = v.clone()\n    v *= beta\n    v += g\n",
    fails="nothing_is_changed",
    says="changed its argument v",
)


@wrong("lr within the velocity", fails=(*FIRST, *AFTER_THE_LOSS), says="not to the velocity")
def momentum_step(w, g, v, lr, beta):
    v = beta * v + lr * g
    return w - v, v


@wrong("a list for a tuple", fails="nothing_is_changed", says="the docstring asks for a tuple")
def momentum_step(w, g, v, lr, beta):
    v = beta * v + g
    return [w - lr * v, v]


slip(
    "w and v change places",
    "return w - lr * v, v",
    "return v, w - lr * v",
    fails=" ".join((*FIRST, *AFTER_THE_LOSS)),
    says="The two have changed places",
)
slip(
    "no step where arguments are watched",
    "    v = beta",
    "    if w.shape == (3,):\n        return w, v\n    v = beta",
    fails="nothing_is_changed",
    says="v",
)
