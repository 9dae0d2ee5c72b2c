"""Gradients of a stage: those of tied weights are summed over stages, its own are guarded."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Communicator, Group
from hpcdl.ddp import apart
from hpcdl.ddp.bucketed import laid_out_like
from hpcdl.sharding.steps import know_apart


class TiedWeight(NamedTuple):
    """A weight that several `stages` share, each with a copy; `number` is its index among all tied weights."""

    number: int
    param: nn.Parameter
    stages: tuple[int, ...]


def find_tied(parts: Sequence[tuple[int, nn.Module]]) -> list[TiedWeight]:
    """Find the trained parameters that modules on several stages share; `parts` are (stage, module), first to last."""
    stages: dict[nn.Parameter, dict[int, None]] = {}
    for stage, module in parts:
        for param in module.parameters():
            if param.requires_grad:
                stages.setdefault(param, {})[stage] = None
    found = [(param, tuple(sorted(each))) for param, each in stages.items() if len(each) > 1]
    return [TiedWeight(number, *each) for number, each in enumerate(found)]


def tied_in(modules: Iterable[nn.Module]) -> list[TiedWeight]:
    """Return the tied weights that `cut_layers` noted in these modules, in the order of the network."""
    noted = (tied for module in modules for inner in module.modules() for tied in getattr(inner, "tied_weights", ()))
    return list({tied.number: tied for tied in sorted(noted, key=lambda tied: tied.number)}.values())


class TiedGradients:
    """The gradients of tied weights in one batch: each stage computes a part, and `sum` adds the parts."""

    def __init__(self, tied: Sequence[TiedWeight], comm: Communicator):
        self.tied, self.comm = [each for each in tied if each.param.requires_grad], comm
        self._before = [each.param.grad for each in self.tied]  # of earlier batches, summed already
        for each in self.tied:
            each.param.grad = None

    def sum(self) -> None:
        """Sum this batch's gradients over the stages; every stage must call it."""
        for (_, param, stages), before in zip(self.tied, self._before, strict=True):
            message = torch.zeros(param.numel() + 1, dtype=param.dtype, device=self.comm.devices[0])
            if param.grad is not None:
                message[:-1].copy_(param.grad.reshape(-1))
                message[-1] = 1  # a stage has used it
            recursive_doubling_all_reduce(message, Group(self.comm, stages))
            param.grad = before
            if message[-1] != 0:
                total = laid_out_like(param, message[:-1].view(param.shape).to(param.device))
                param.grad = total if before is None else before.add_(total)


class OwnGradients:
    """The gradients of a stage's modules; their norm is not the whole network's (`hpcdl.ddp.apart`)."""

    def __init__(self, comm: Communicator, modules: Sequence[nn.Module]):
        self.params = [param for module in modules for param in module.parameters()] if comm.size > 1 else []
        later = {each.param for each in tied_in(modules) if each.stages[0] != comm.rank}
        for param in self.params:
            know_apart(param, comm, apart.OfStage, param not in later)
            param.grad = apart.plain(param.grad)  # passes add to it

    def guard(self) -> None:
        """Guard the gradients once they are complete."""
        for param in self.params:
            param.grad = apart.guarded(param, param.grad)
