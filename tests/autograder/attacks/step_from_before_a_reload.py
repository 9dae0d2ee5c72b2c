# gradient_descent.adam_step: 0 points, flagged, long
# The functions that a reloaded module had before.
import importlib
import sys

_sgd = sys.modules["torch.optim.sgd"]
before = _sgd._single_tensor_sgd
importlib.reload(_sgd)


def momentum_step(w, g, v, lr, beta):
    w, v = w.clone(), v.clone()
    before(
        [w],
        [g],
        [v],
        None,
        None,
        weight_decay=0.0,
        momentum=beta,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        has_sparse_grad=False,
    )
    return w, v


def adam_step(w, g, state, lr):
    raise NotImplementedError
