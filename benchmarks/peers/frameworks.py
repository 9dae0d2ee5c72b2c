"""Horovod's interface as a way of `hpcdl.training.six_tools`: Horovod 0.28.1 does not compile beside torch 2.13."""

import torch
from torch import nn

from hpcdl.comm.base import Communicator
from hpcdl.training.six_tools import RATE, Prepared


def lab_13() -> dict:
    """Return what the own answer of lab `frameworks` defines: Horovod's calls in forty lines on our communicator."""
    from autograder.grading.reference import statements  # only this way needs it: the others' starts go without

    names: dict = {}
    for _, code in statements("frameworks", ["DistributedOptimizer", "broadcast_parameters"]):
        exec(code, names)
    return names


def horovod(model: nn.Module, comm: Communicator) -> Prepared:
    hvd = lab_13()
    hvd["broadcast_parameters"](list(model.parameters()), comm)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    return Prepared(model, hvd["DistributedOptimizer"](optimizer, comm))
