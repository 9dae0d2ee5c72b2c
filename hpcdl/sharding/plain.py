"""ZeRO-3 in one sitting: at rest every rank keeps one p-th of each layer, and a layer is whole only while it runs.

    model = nn.Sequential(*(Sharded(layer, comm) for layer in layers))
    optimizer = torch.optim.AdamW(model.parameters())      # of this rank's shards: its states are a p-th, too
    loss_fn(model(x), y).backward()                        # x: this rank's part of the batch, equally long on all ranks
    optimizer.step()                                       # there is nothing to wait for

The weights are gathered before forward and forgotten after it. Autograd would keep them for backward: it keeps a note
instead, from which they are gathered again. The gradient of a gather is a reduce-scatter, so each rank gets its shard
of the mean gradient. That makes 3 Psi (p-1)/p bytes per rank and step for Psi bytes of weights, and less where backward
needs no weights: in the first layer. `fully_sharded.py` is the class to use: it gathers the next layer while one runs,
accepts unequal batches, buffers, shared and frozen parameters, and saves and loads (Rajbhandari et al. 2020, "ZeRO").
"""

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector

from hpcdl.collectives import all_gather, reduce_scatter
from hpcdl.comm import Communicator
from hpcdl.first_derivative import first_only


class Sharded(nn.Module):
    """One layer without buffers; this rank keeps its `shard`, a p-th of the layer's flat weights."""

    def __init__(self, layer: nn.Module, comm: Communicator):
        super().__init__()
        whole = parameters_to_vector(layer.parameters()).detach()
        comm.broadcast(whole)
        self.comm, self.numel = comm, whole.numel()
        self.shard = nn.Parameter(whole.tensor_split(comm.size)[comm.rank].clone())
        self.shapes = {name: param.shape for name, param in layer.named_parameters()}
        self.layer = [layer]  # in a list, so that the layer's own parameters are not parameters of this module
        for param in layer.parameters():
            param.data = param.data.new_empty(0)
        self.again: torch.Tensor | None = None  # the whole weights, while backward needs them

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the layer's output; its weights are whole meanwhile."""
        whole = _Gather.apply(self.shard, self)
        address = whole.untyped_storage().data_ptr()

        def forget(x: torch.Tensor):
            """Keep where a weight lies in the whole, instead of the weight; keep other tensors."""
            is_weight = x.untyped_storage().data_ptr() == address
            return (x.shape, x.stride(), x.storage_offset()) if is_weight else x

        def remember(kept) -> torch.Tensor:
            """Return the tensor for which `forget` kept something; the first weight gathers the whole again."""
            if isinstance(kept, torch.Tensor):
                return kept
            if self.again is None:
                self.again = self.gather(self.shard)
            return self.again.as_strided(*kept)

        with saved_tensors_hooks(forget, remember):
            return functional_call(self.layer[0], self._views(whole), inputs)

    def gather(self, shard: torch.Tensor) -> torch.Tensor:
        """Return the whole weights, flat, from the shards of all ranks."""
        whole = shard.new_empty(self.numel)
        whole.tensor_split(self.comm.size)[self.comm.rank].copy_(shard.detach())
        all_gather(whole, self.comm)
        return whole

    def reduce(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return this rank's shard of the ranks' mean gradient, and forget the whole weights."""
        self.again = None
        return reduce_scatter(gradient.clone(), self.comm) / self.comm.size

    def _views(self, whole: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the layer's parameters by name, as views of its flat weights."""
        parts = whole.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


class _Gather(torch.autograd.Function):
    """The shards of all ranks, one after the other; its gradient is summed, and each rank takes its shard of it."""

    @staticmethod
    def forward(ctx, shard, layer):
        ctx.layer = layer
        return layer.gather(shard)

    @staticmethod
    @first_only("a layer in shards")
    def backward(ctx, gradient):
        return ctx.layer.reduce(gradient), None
