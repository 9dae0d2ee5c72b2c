"""torch.distributed's pipelines and tensor-parallel block on gloo, as peers of `hpcdl.parallel`."""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.functional import gelu, mse_loss, scaled_dot_product_attention

# name -> torch's schedule, and which parts of the network (of as many as ranks have in all) each of two ranks has
PIPELINES = {
    "torch GPipe": (ScheduleGPipe, [[0], [1]]),
    "torch 1F1B": (Schedule1F1B, [[0], [1]]),
    "torch InterleavedZeroBubble": (ScheduleInterleavedZeroBubble, [[0, 2], [1, 3]]),
    "torch ZBV": (ScheduleZBVZeroBubble, [[0, 3], [1, 2]]),
}


def pipeline(
    name: str, layers: list[nn.Module], x: torch.Tensor, y: torch.Tensor, m: int, rank: int
) -> Callable[[], object]:
    """One step of torch's pipeline of that name on rank 0 or 1: gradients of the mean loss over `m` microbatches."""
    schedule, parts = PIPELINES[name]
    count, mine = sum(map(len, parts)), parts[rank]
    size = len(layers) // count
    stages = [
        PipelineStage(
            nn.Sequential(*layers[part * size : (part + 1) * size]),
            part,
            count,
            torch.device("cpu"),
        )
        for part in mine
    ]
    single = len(stages) == 1
    runner = schedule(stages[0] if single else stages, m, loss_fn=mse_loss)
    given = (x,) if 0 in mine else ()
    options = {"target": y, "losses": []} if count - 1 in mine else {}
    return lambda: runner.step(*given, **options)


class AttentionBlock(nn.Module):
    """The weights of `dense`, a torch.nn.TransformerEncoderLayer, in linear layers of their own, as DTensor splits."""

    def __init__(self, dense: nn.TransformerEncoderLayer):
        super().__init__()
        attention, hidden = dense.self_attn, dense.self_attn.embed_dim
        self.width = attention.head_dim
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        thirds = zip(
            (self.q, self.k, self.v), attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True
        )
        for layer, weight, bias in thirds:
            layer.load_state_dict({"weight": weight, "bias": bias})
        self.out.load_state_dict(attention.out_proj.state_dict())
        self.norm1, self.norm2, self.linear1, self.linear2 = dense.norm1, dense.norm2, dense.linear1, dense.linear2

    def forward(self, x: torch.Tensor):
        h = self.norm1(x)
        q, k, v = (layer(h).unflatten(-1, (-1, self.width)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        attended = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.linear2(gelu(self.linear1(self.norm2(x))))


def block(dense: nn.TransformerEncoderLayer) -> nn.Module:
    """Return the block on two ranks by DTensor: q, k, v and linear1 by columns, out and linear2 by rows."""
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in ("q", "k", "v", "linear1")}
    plan |= {name: RowwiseParallel() for name in ("out", "linear2")}
    return parallelize_module(AttentionBlock(dense), init_device_mesh("cpu", (2,)), plan)
