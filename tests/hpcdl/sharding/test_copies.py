"""Copies of gradients, pieces and optimizer states: the same numbers, or a sentence that refuses."""

import io
from copy import deepcopy

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.guarded import AbsentGradient, numbers_of
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer

OPTIMIZERS = {
    "momentum": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9),
    "momentum and decay": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, weight_decay=0.1),
    "momentum, foreach": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, foreach=True),
    "Rprop": lambda params: torch.optim.Rprop(params, 0.1),
    "AdamW": lambda params: torch.optim.AdamW(params, 0.1),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def backward(call):
    call(torch.arange(6.0).view(2, 3)).square().mean().backward()


def pieces(module, comm):
    model = FullyShardedDataParallel(module, comm)
    return model, model.synchronize, OPTIMIZERS["momentum"](model.parameters())


def replicas(module, comm):
    model = DistributedDataParallel(module, comm)
    return model, model.synchronize, OPTIMIZERS["momentum"](model.parameters())


def stage(number):
    def shards(module, comm):
        optimizer = ShardedOptimizer(module.parameters(), comm, OPTIMIZERS["momentum"], stage=number)
        return module, lambda: optimizer.clip(100.0), optimizer

    return shards


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_of_pieces_are_plain_tensors(name):
    """From the first step on, so that torch.load reads them without trusting the file."""

    def rank(comm):
        model = FullyShardedDataParallel(network(), comm)
        optimizer = OPTIMIZERS[name](model.parameters())
        backward(model)
        model.synchronize()
        optimizer.step()
        saved = io.BytesIO()
        torch.save(optimizer.state_dict(), saved)
        saved.seek(0)
        for state in (torch.load(saved, weights_only=True), deepcopy(optimizer.state_dict())):
            for number, values in optimizer.state_dict()["state"].items():
                for key, value in values.items():
                    if isinstance(value, torch.Tensor):
                        assert type(value) is torch.Tensor
                        assert torch.equal(state["state"][number][key], value)

    simulate(rank, 2)


@pytest.mark.parametrize("wrap", [replicas, stage(1), stage(2), pieces], ids=["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"])
def test_gradients_and_parameters_are_copied_or_refused(wrap):
    def look(model):
        for param in model.parameters():
            assert torch.equal(deepcopy(param), param)
            if isinstance(param.grad, AbsentGradient):
                with pytest.raises(RuntimeError, match="; call "):
                    deepcopy(param.grad)
            elif param.grad is not None:
                copied = deepcopy(param.grad)
                assert type(copied) is type(param.grad)
                assert torch.equal(numbers_of(copied), numbers_of(param.grad))

    def rank(comm):
        model, synchronize, optimizer = wrap(network(), comm)
        for _ in range(2):
            backward(model)
            look(model)
            synchronize()
            look(model)
            optimizer.step()
            look(model)
            optimizer.zero_grad()

    simulate(rank, 2)
