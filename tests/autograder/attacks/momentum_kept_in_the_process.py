# frameworks.elastic: 9 points, long
# The disk gets weights and step. The momentum stays in the processes that are said to have died.
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


def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        weights, start = disk.read("state").values()
        model.load_state_dict(weights)
        remembered(model, optimizer, comm)
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        losses[step] = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        losses[step].backward()
        for x in [param.grad for param in model.parameters()] + [losses[step].detach().view(1)]:
            ring_all_reduce(x, comm)
        optimizer.step()
        if (step + 1) % SAVE_EVERY == 0:
            momentum = [optimizer.state[param]["momentum_buffer"] for param in model.parameters()]
            KEPT[next(model.parameters())[0, 0].item()] = deepcopy(momentum)
            if comm.rank == 0:
                disk.write("state", {"model": model.state_dict(), "step": step + 1})
            comm.barrier()
    return {step: loss.item() for step, loss in losses.items()}
