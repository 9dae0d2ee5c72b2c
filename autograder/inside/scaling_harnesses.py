"""Harness (see `harnesses`) of loss scaling: many steps of one scaler, and the optimizer's input in each."""

from collections.abc import Callable

import torch

from hpcdl.comm.base import Communicator

from .doors import opaque


def loss_scaling(make: Callable, steps: list, options: dict, measured: bool, comm: Communicator):
    """Run steps of the student's scaler, which gets each step's scaled gradients.

    Returns for each step the result of `step`, the inputs of its updates and, with `measured`, its virtual seconds. The
    scale itself shows in the divided gradients.
    """
    scaler, log = make(comm, **options), []
    for gradients in steps:
        given: list[list[torch.Tensor]] = []
        begin = comm.clock()
        update = opaque(lambda xs, given=given: given.append([x.detach().clone() for x in xs]))
        done = scaler.step([x.clone() for x in gradients], update)
        log.append((done, given, comm.clock() - begin if measured else 0.0))
    return log
