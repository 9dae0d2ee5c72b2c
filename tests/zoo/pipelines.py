"""The zoo as stages of a pipeline: each entry's module between two others, with the entry's batches and optimizer."""

from functools import partial

import torch
from torch import nn
from zoo.registry import Entry, Kit, Weights, plain, squares, wrapper

from hpcdl.collectives import broadcast
from hpcdl.parallel.pipeline import FusedLayers, Layers, RowSpec, cut_batch, cut_layers, run_stage
from hpcdl.parallel.schedules import one_f_one_b, zb_h1

MICROBATCHES = 2


class Scale(nn.Module):
    """Numbers times a weight; words pass as they are."""

    def __init__(self):
        super().__init__()
        self.s = nn.Parameter(torch.tensor(1.25, dtype=torch.float64))

    def forward(self, x):
        return x * self.s if x.is_floating_point() or x.is_complex() else x


def network(entry: Entry) -> nn.Sequential:
    return nn.Sequential(Scale(), entry.build(), Scale())


def mean_square(y, _):
    return y.abs().square().mean()


@wrapper("pipeline")
class Pipeline(Kit):
    """B and W apart on one rank and, fused, on two; recomputed on three."""

    alone = True
    # Its stages have dense parameters, too; and a parameter made in forward is on one stage.
    made = ("parameter made in forward", "SparseAdam", "layer in every second step")  # a microbatch is no step
    # Microbatches are batches of their own to layers that mix samples.
    mixing = (
        "softmax over samples, same batch",
        "batch's mean removed in forward, same batch",
        "attention between samples, same batch",
        "minibatch discrimination, same batch",
        "largest samples kept in forward, same batch",
    )
    elsewhere = frozenset(
        {"route that one rank has", "everything frozen", "no parameters", "wrapped twice", "Muon", *made, *mixing}
    )

    once = frozenset({"hook on the output", "torch.autograd.grad inside"})  # must see a graph the first time

    @classmethod
    def trains(cls, entry):
        own = entry.loop is plain and entry.loss is squares and all(len(batch) == 1 for batch in entry.batches())
        return own and entry.name not in cls.elsewhere

    @classmethod
    def reference(cls, entry):
        return plain(entry._replace(make=lambda: network(entry)), Kit(entry=entry))

    def train(self) -> Weights:
        net = self.entry._replace(make=lambda: network(self.entry)).build()
        parts = [(stage, 0) for stage in range(self.size)]
        (chunk,) = cut_layers(net, parts, self.rank)
        kinds = (Layers, FusedLayers, partial(Layers, recompute=self.entry.name not in self.once))
        layers = kinds[self.size - 1](chunk)
        params = list(chunk.parameters())
        optimizer = self.entry.optimizer(params) if params else None
        for (x,) in self.entry.batches():
            run_stage(
                self.comm,
                [layers],
                (one_f_one_b if self.size > 2 else zb_h1)(self.size, MICROBATCHES),
                cut_batch(x, x, MICROBATCHES),
                mean_square,
                between(self.entry, x)[2 - self.size + 1 :] if self.size > 1 else (),
            )
            if optimizer:
                optimizer.step()
                optimizer.zero_grad()
        return self.gathered(net, parts)

    def gathered(self, net, parts) -> Weights:
        """The whole network's state, each part from its stage."""
        owner = {id(x): stage for stage, _ in parts for x in _state(cut_layers(net, parts, stage)[0]).values()}
        found = {}
        for name, x in _state(net).items():
            found[name] = x.detach().resolve_conj().clone(memory_format=torch.contiguous_format)
            broadcast(found[name], self.comm, owner[id(x)])
        return found


def between(entry: Entry, x: torch.Tensor) -> list[RowSpec]:
    """What passes before and after the entry's module."""
    y = entry.build()(x.clone())
    return [RowSpec(tuple(each.shape[1:]), each.dtype) for each in (x, y)]


def _state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: x for name, x in module.state_dict(keep_vars=True).items() if isinstance(x, torch.Tensor)}
