"""Numerical methods of the course, written to be read.

- `derivatives`: difference quotients, what limits them, and the step that does best
- `dual`: dual numbers, forward-mode differentiation
- `common_functions`: the lecture's table of derivatives
- `descent`: gradient descent on a linear model, with momentum and in mini-batches
- `rounding`: formats of few bits; rounding to nearest and at random; steps of SGD for weights stored in few bits

Names are imported on first use.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.numerics.derivatives import central, forward, gradient
    from hpcdl.numerics.descent import descend, max_stable_lr, minibatch_grad, mse_grad, mse_hessian, mse_loss
    from hpcdl.numerics.dual import Dual, partials
    from hpcdl.numerics.rounding import Fixed, Float, neighbours, round_nearest, sgd_step, stochastic_round

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "central": "derivatives",
        "forward": "derivatives",
        "gradient": "derivatives",
        "Dual": "dual",
        "partials": "dual",
        "descend": "descent",
        "max_stable_lr": "descent",
        "minibatch_grad": "descent",
        "mse_grad": "descent",
        "mse_hessian": "descent",
        "mse_loss": "descent",
        "Fixed": "rounding",
        "Float": "rounding",
        "neighbours": "rounding",
        "round_nearest": "rounding",
        "sgd_step": "rounding",
        "stochastic_round": "rounding",
    },
)
