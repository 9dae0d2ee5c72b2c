"""Data parallelism in one sitting: gradients are summed in buckets while backward still runs.

Every rank has the same weights and takes its part of the batch. Autograd computes the last layer's gradients first. As
soon as all gradients of a bucket are in, a background sums them over the ranks, while autograd continues with the
layers before. `hpcdl.ddp.overlapped` is the class to use: ranks may have different numbers of samples there, parameters
may be shared, frozen or unused, and what would be wrong is refused (Li et al. 2020, "PyTorch Distributed").
"""

import torch
from torch import nn

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import Communicator


class PlainDDP(nn.Module):
    """Wrap `module`: every rank of `comm` has rank 0's weights, and the mean of all ranks' gradients.

        ddp = PlainDDP(model, comm)
        loss_fn(ddp(x), y).backward()      # x: this rank's part of the batch, equally long on all ranks
        ddp.synchronize()
        optimizer.step()

    Every parameter is trained and used in every step. Gradients travel in buckets of at least `numel` elements.
    """

    def __init__(self, module: nn.Module, comm: Communicator, numel: int = 2**18):
        super().__init__()
        self.module, self.background = module, comm.background()
        self.buckets = _fill(list(module.parameters()), numel)
        for bucket in self.buckets:
            for param in bucket.params:
                comm.broadcast(param.detach())
                param.register_post_accumulate_grad_hook(lambda param, bucket=bucket: self._arrived(param, bucket))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the module's output."""
        return self.module(*inputs)

    def synchronize(self) -> None:
        """Wait for the buckets under way; then each parameter's gradient is the mean over all ranks."""
        self.background.wait()
        for bucket in self.buckets:
            bucket.take_out()

    def _arrived(self, param: nn.Parameter, bucket: "_Bucket") -> None:
        """Note that autograd has computed a gradient, and start its bucket if that was the last one missing."""
        bucket.missing.remove(param)
        if not bucket.missing:
            bucket.put_in()
            self.background.start(bucket.average)


class _Bucket:
    """Parameters whose gradients travel in one message."""

    def __init__(self, params: list[nn.Parameter]):
        self.params, self.missing = params, set(params)
        self.flat = torch.cat([torch.zeros_like(param).view(-1) for param in params])

    def put_in(self) -> None:
        """Copy the gradients into one flat tensor."""
        torch.cat([param.grad.view(-1) for param in self.params], out=self.flat)  # type: ignore[union-attr]

    def average(self, comm: Communicator) -> None:
        """Replace the flat tensor by its mean over the ranks."""
        ring_all_reduce(self.flat, comm)
        self.flat /= comm.size

    def take_out(self) -> None:
        """Copy the means back, and wait for the next step's gradients."""
        sizes = [param.numel() for param in self.params]
        for param, mean in zip(self.params, self.flat.split(sizes), strict=True):
            param.grad = mean.view_as(param).clone()
        self.missing = set(self.params)


def _fill(params: list[nn.Parameter], numel: int) -> list[_Bucket]:
    """Distribute `params` over buckets of at least `numel` elements, last layer first."""
    buckets, waiting = [], list[nn.Parameter]()
    for param in reversed(params):
        waiting.append(param)
        if sum(one.numel() for one in waiting) >= numel or param is params[0]:
            buckets.append(_Bucket(waiting))
            waiting = []
    return buckets
