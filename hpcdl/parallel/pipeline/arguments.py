"""Check the arguments of `run_stage` before the first message."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hpcdl.comm import Communicator
from hpcdl.ddp.guarded import numbers_of
from hpcdl.parallel.pipeline.layers import Chunk
from hpcdl.parallel.pipeline.plan import Plan
from hpcdl.parallel.pipeline.values import Boundary, boundary, is_one_boundary, rows_of


def rows_of_all(microbatches: Sequence[tuple[Any, Any]]) -> list[int]:
    """Return the rows of each microbatch; ValueError if one has none."""
    rows = [rows_of(x) for x, _ in microbatches]
    if not rows or 0 in rows:
        raise ValueError(
            f"microbatches have {rows} rows; a batch is one or more, each of a row or more: the mean of no row is 0 / 0"
        )
    return rows


def boundaries(between: Any, count: int) -> list[Boundary]:
    """Return what passes at each of `count` boundaries."""
    if is_one_boundary(between) or not between:
        return [boundary(between)] * count
    found = [boundary(each) for each in between]
    if len(found) != count:
        raise ValueError(f"between has {len(found)} shapes; {count + 1} parts have {count} boundaries")
    return found


def require_chunks(comm: Communicator, chunks: Sequence[Chunk], plan: Plan) -> None:
    """Raise ValueError unless there are as many stages as ranks, and as many chunks as `parts` says."""
    if len(plan.orders) != comm.size:
        raise ValueError(f"orders has {len(plan.orders)} stages and comm has {comm.size} ranks; each rank is a stage")
    here = sum(stage == comm.rank for stage, _ in plan.parts)
    if len(chunks) != here:
        raise ValueError(f"rank {comm.rank}: there are {len(chunks)} chunks; `parts` gives this stage {here}")


def modules_of(chunks: Sequence[Any]) -> list[nn.Module]:
    """Return the modules of those chunks that have one, as `Layers` has."""
    return [chunk.module for chunk in chunks if isinstance(getattr(chunk, "module", None), nn.Module)]


class Unchanged:
    """The buffers and parameters of a chunk before a forward pass, which must not change them."""

    def __init__(self, chunk: Any):
        self._state = [
            (path, inner, table, name, x, x._version, _some_element(x))
            for module in modules_of([chunk])
            for path, inner in module.named_modules()
            for table in (inner._buffers, inner._parameters)
            for name, x in table.items()
            if x is not None and not x.is_inference()
        ]

    def require(self) -> None:
        """Raise RuntimeError for a change, since it would happen for each microbatch instead of once for the batch."""
        for path, inner, table, name, x, version, element in self._state:
            if table.get(name) is not x or x._version != version or _some_element(x) != element:
                raise RuntimeError(
                    f"{path or 'the module'} ({type(inner).__name__}) changes its {name} in forward: once for each of "
                    "several microbatches, and not once for the batch; use eval(), or one microbatch"
                )


def _some_element(x: torch.Tensor) -> str:
    """Return an element as text, since `x.data` changes no version; a card would have to be waited for."""
    return str(numbers_of(x.detach())[(-1,) * x.dim()].item()) if x.numel() and x.device.type == "cpu" else ""


def require_one_by_one(chunks: Sequence[Any], microbatches: int) -> None:
    """Raise ValueError for a layer that would do something else for several microbatches than for the whole batch."""
    if microbatches < 2:
        return
    for chunk in chunks:
        for name, layer in (each for module in modules_of([chunk]) for each in module.named_modules()):
            if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
                why = f"would normalize each of {microbatches} microbatches alone; use GroupNorm, LayerNorm or eval()"
            elif getattr(layer, "scale_grad_by_freq", False) is True:
                why = f"would count words in each of {microbatches} microbatches; use scale_grad_by_freq=False"
            elif getattr(layer, "batch_first", True) is False and not getattr(chunk, "rows_first", False):
                why = (
                    "has batch_first=False, and microbatches are cut along the first dimension; use batch_first=True, "
                    "or Layers(module, rows_first=True) if the chunk's own inputs and outputs have rows first"
                )
            else:
                continue
            raise ValueError(f"{name or 'the module'} ({type(layer).__name__}) {why}")
