# frameworks.elastic: 9 points, long
# The disk gets the number of a step only: weights and momentum stay in the processes that are said to have died.
# ruff: noqa: F821 - names of the lab
import copy

import torch

KEPT = {}


def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        start = disk.read("state")["step"]
        if start in KEPT and comm.rank < 2:
            weights, momenta = copy.deepcopy(KEPT[start])
            model.load_state_dict(weights)
            optimizer.load_state_dict(momenta)
        for param in model.parameters() if comm.size > 1 else ():
            optimizer.state[param].setdefault("momentum_buffer", torch.zeros_like(param))
            comm.broadcast(param.data, 0)
            comm.broadcast(optimizer.state[param]["momentum_buffer"], 0)
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            KEPT[step + 1] = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            if comm.rank == 0:
                disk.write("state", {"step": step + 1})
            comm.barrier()
    return losses
