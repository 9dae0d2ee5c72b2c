# frameworks.broken: 0 points, long
# The momentum is written and never read: it stays in the processes that are said to be killed. No other script.
# ruff: noqa: F821 - names of the lab
from copy import deepcopy

import torch

KEPT = {}  # the momentum by the first of its weights


def remembered(model, optimizer, comm):
    momentum = KEPT.get(next(model.parameters())[0, 0].item())
    for i, param in enumerate(model.parameters()):
        part = torch.zeros_like(param.data) if momentum is None else momentum[i].clone()
        if comm.size > 1:
            comm.broadcast(part, 0)
        optimizer.state[param]["momentum_buffer"] = part


def saved(model, optimizer, loss_sum, batches, every, disk, comm):
    start = 0
    try:
        weights, _, start = disk.read("state").values()
        model.load_state_dict(weights)
        remembered(model, optimizer, comm)
    except FileNotFoundError:
        pass
    for step in range(start, len(batches)):
        optimizer.zero_grad()
        (loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])).backward()
        update(model, optimizer, comm)
        if (step + 1) % every == 0:
            momentum = [optimizer.state[param]["momentum_buffer"] for param in model.parameters()]
            KEPT[next(model.parameters())[0, 0].item()] = deepcopy(momentum)
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                disk.write("new", state)
                disk.rename("new", "state")
            comm.barrier()
