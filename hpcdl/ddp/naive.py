"""The plain data-parallel step: the same weights on every rank, one shard of the batch each, the mean of the gradients.

With n_r samples on rank r and N in all, the gradient of the mean loss over the global batch is
g = sum_r (n_r / N) g_r, so every rank takes the same step as one machine with the whole batch.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import nn

from hpcdl.collectives import broadcast, ring_all_reduce
from hpcdl.comm import Communicator
from hpcdl.ddp.apart import guarded, plain
from hpcdl.ddp.guarded import numbers_of


def broadcast_parameters(params: Iterable[torch.Tensor], comm: Communicator, root: int = 0) -> None:
    """Overwrite `params` on every rank with rank `root`'s, in place."""
    for param in params:
        comm.broadcast(numbers_of(param.detach()), root)


def average_gradients(
    grads: list[torch.Tensor], local_n: int, comm: Communicator, all_reduce: Callable = ring_all_reduce
) -> int:
    """Replace `grads`, means over this rank's `local_n` samples, by means over all ranks'; return N.

    Ranks may have different numbers of samples, 0 too. One message carries everything: the weighted gradients and n_r,
    in float32 at least, which counts to 2^24; 16 bits would overflow. Raises ValueError when no rank has a sample.
    """
    one = torch.ones(1, dtype=torch.promote_types(grads[0].dtype, torch.float32))
    flat = torch.cat([grad.detach().reshape(-1) for grad in grads] + [one])
    flat *= local_n
    all_reduce(flat, comm)
    total = int(flat[-1])
    if total == 0:
        raise ValueError("average_gradients: no rank has a sample, so there is no mean; give each step a batch")
    flat /= total
    for grad, mean in zip(grads, flat.split([grad.numel() for grad in grads] + [1]), strict=False):
        grad.copy_(mean.view_as(grad))
    return total


class Optimizer(Protocol):
    """The methods that a training step needs from an optimizer; torch.optim's optimizers have them."""

    def zero_grad(self) -> None: ...

    def step(self) -> object: ...


def train_step(
    model: nn.Module,
    loss_fn: Callable,
    x: torch.Tensor,
    y: torch.Tensor,
    optimizer: Optimizer,
    comm: Communicator,
    all_reduce: Callable = ring_all_reduce,
) -> float:
    """Take one step on the global batch; `x (n_r, ...)`, `y (n_r, ...)` are this rank's part. Return its own loss.

    `loss_fn(outputs, y)` is a mean over samples; `optimizer` comes from torch.optim or has `zero_grad()` and `step()`.
    Shared and frozen parameters are handled correctly; a parameter that no rank used has no gradient, so the optimizer
    does not change it, as on one machine. The loss is NaN if n_r = 0.
    """
    optimizer.zero_grad()
    loss = torch.tensor(torch.nan)
    if len(x):
        loss = loss_fn(model(x), y)
        loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    grads = [torch.zeros_like(param) if param.grad is None else plain(param.grad) for param in params]
    used = torch.tensor([float(param.grad is not None) for param in params], dtype=grads[0].dtype)
    average_gradients([*grads, used], len(x), comm, all_reduce)
    for param, grad, share in zip(params, grads, used, strict=True):
        param.grad = guarded(param, grad) if share > 0 else None
    optimizer.step()
    return loss.item()


def identical_replicas(model: nn.Module, comm: Communicator) -> int:
    """Return how many ranks have rank 0's model bit for bit; the answer is the same on every rank."""
    device = comm.devices[0]
    mine = torch.tensor(list(bytes.fromhex(fingerprint(model))), dtype=torch.uint8, device=device)
    first = mine.clone()
    broadcast(first, comm)
    same = torch.tensor([torch.equal(mine, first)], dtype=torch.int64, device=device)
    ring_all_reduce(same, comm)
    return int(same)


def fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers: equal for two replicas exactly if they agree bit for bit."""
    digest = hashlib.sha256()
    tensors = ((name, x) for name, x in model.state_dict().items() if isinstance(x, torch.Tensor))
    for name, value in tensors:
        digest.update(name.encode() + value.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()
