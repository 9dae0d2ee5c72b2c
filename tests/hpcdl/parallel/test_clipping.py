"""Gradients of a split network: a norm of one rank's is refused, and the library's norm is that of one process."""

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_ as torchs
from torch.nn.utils import clip_grad_value_, get_total_norm, parameters_to_vector

from hpcdl.comm import RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.parallel import (
    ColumnLinear,
    Experts,
    FilterConv2d,
    HeadAttention,
    Mesh,
    RowLinear,
    VocabularyEmbedding,
    clip_grad_norm_,
    cut_batch,
    cut_layers,
    run_stage,
)
from hpcdl.parallel.pipeline import FusedLayers, Layers
from hpcdl.parallel.schedules import one_f_one_b
from hpcdl.parallel.tensor import join, split
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer

LIMIT = 0.01


def rows(n=6):
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)).double()


def cut(dense, comm):
    return nn.Sequential(ColumnLinear.of(dense[0], comm), dense[1], RowLinear.of(dense[2], comm))


def mean_square(y, _=None):
    return y.square().mean()


def one_process():
    """The norm and the clipped gradients of one process."""
    dense = net()
    mean_square(dense(rows())).backward()
    norm = torchs(dense.parameters(), LIMIT).item()
    return norm, [param.grad for param in dense.parameters()]


def grads(params):
    return [param.grad for param in params if param.grad is not None]


WAYS = {
    "torch": lambda ps: torchs(ps, LIMIT),
    "torch, one by one": lambda ps: torchs(ps, LIMIT, foreach=False),
    "torch, largest": lambda ps: torchs(ps, LIMIT, norm_type=float("inf")),
    "get_total_norm": lambda ps: get_total_norm(grads(ps)),
    "norms by hand": lambda ps: sum(g.norm().item() ** 2 for g in grads(ps)) ** 0.5,
    "norms of data": lambda ps: sum(p.grad.data.norm(2) ** 2 for p in ps if p.grad is not None),
    "squares by hand": lambda ps: sum(g.detach().pow(2).sum() for g in grads(ps)).sqrt(),
    "dot products": lambda ps: sum(torch.dot(g.flatten(), g.flatten()) for g in grads(ps)),
    "one vector": lambda ps: torch.cat([g.flatten() for g in grads(ps)]).norm(),
    "largest by hand": lambda ps: max(g.abs().max() for g in grads(ps)),
    "numpy": lambda ps: sum((g.numpy() ** 2).sum() for g in grads(ps)),
    "are finite": lambda ps: all(g.isfinite().all() for g in grads(ps)),
    "GradScaler": lambda ps: unscaled(ps),
}


def unscaled(params):
    optimizer, scaler = torch.optim.SGD(params, 0.1), torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    scaler.unscale_(optimizer)


def tensor(comm):
    model = cut(net(), comm)
    mean_square(model(rows())).backward()
    return list(model.parameters())


def stages(comm, kind=Layers):
    (chunk,) = cut_layers(list(net()), [(stage, 0) for stage in range(comm.size)], comm.rank)
    x, options = rows(), {"dtype": torch.float64}
    run_stage(comm, [kind(chunk)], one_f_one_b(comm.size, 2), cut_batch(x, x, 2), mean_square, (8,), **options)
    return list(chunk.parameters())


def replicated(comm):
    """Replicas of a split network, by DDP: the mean gradient is refused, too."""
    mesh = Mesh(comm, data=1, tensor=comm.size)
    model = DistributedDataParallel(cut(net(), mesh.tensor), mesh.data)
    mean_square(model(rows())).backward()
    model.synchronize()
    return list(model.parameters())


SPLIT = {"tensor": tensor, "stages": stages, "fused stages": lambda c: stages(c, FusedLayers), "replicas": replicated}


@pytest.mark.thinned(5, 2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("split_by", SPLIT)
def test_a_ranks_own_norm_is_refused(split_by, way):
    def rank(comm):
        params = SPLIT[split_by](comm)
        if not any(type(param.grad) is not torch.Tensor for param in params):
            return  # a stage of Tanh
        with pytest.raises(RuntimeError, match=r"clip_grad_norm_\(params, max_norm, comm\)|LossScaler\(comm\)"):
            WAYS[way](params)

    simulate(rank, 2)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("split_by", SPLIT)
def test_the_norm_is_that_of_one_process(split_by, p):
    """The library's norm equals torch's in one process, and each rank's gradients are scaled by it."""
    norm, expected = one_process()
    squares = sum(g.square().sum().item() for g in expected)

    def rank(comm):
        params = SPLIT[split_by](comm)
        found = clip_grad_norm_(params, LIMIT, comm)
        return found, clip_grad_norm_(params, 1e9, comm)

    for found, after in simulate(rank, p).results:
        assert found == pytest.approx(norm, rel=1e-12)
        assert after == pytest.approx(squares**0.5, rel=1e-12)


LAYERS = {
    "ColumnLinear": (lambda: nn.Linear(6, 4), ColumnLinear.of, rows(), 0.0),
    "RowLinear": (lambda: nn.Linear(6, 4), RowLinear.of, rows(), -1),
    "FilterConv2d": (lambda: nn.Conv2d(1, 4, 3), FilterConv2d.of, rows().view(1, 1, 6, 6), 0.0),
    "HeadAttention": (lambda: nn.MultiheadAttention(6, 2, batch_first=True), HeadAttention.of, rows()[None], 0.0),
    "VocabularyEmbedding": (lambda: nn.Embedding(10, 6), VocabularyEmbedding.of, torch.arange(7), 0.0),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_split_layer_guards(name):
    make, of, x, dim = LAYERS[name]

    def rank(comm):
        layer = of(make().double(), comm)
        layer(split(x, comm, dim) if dim else x).square().sum().backward()
        with pytest.raises(RuntimeError, match="share of a split layer"):
            torchs(layer.parameters(), LIMIT)
        return clip_grad_norm_(layer.parameters(), float("inf"), comm)

    first, second = simulate(rank, 2).results
    assert first == second > 0


def test_experts_count_on_their_rank():
    def model(comm):
        torch.manual_seed(0)
        gate, experts = nn.Linear(6, 2), [nn.Linear(6, 6) for _ in range(2)]
        mine = experts[comm.rank :: comm.size]
        return Experts(gate, mine, comm, 2, float("inf")).double()

    def rank(comm):
        layer = model(comm)
        y = layer(split(rows(), comm, 0))[0]
        join(y, comm, 6, 0).square().mean().backward()
        if comm.size > 1:
            with pytest.raises(RuntimeError, match="layers that only this rank has"):
                torchs(layer.parameters(), LIMIT)
        return clip_grad_norm_(layer.experts.parameters(), float("inf"), comm)

    (one,) = simulate(rank, 1).results
    assert simulate(rank, 2).results == pytest.approx([one, one], rel=1e-12)


def test_a_tied_weight_counts_once():
    """The embedding and the head of two stages have one weight, and one gradient."""

    def decoder():
        torch.manual_seed(0)
        head, words = nn.Linear(6, 10, bias=False), nn.Embedding(10, 6)
        head.weight = words.weight
        return nn.Sequential(words, nn.Linear(6, 6), head).double()

    def rank(comm):
        (chunk,) = cut_layers(list(decoder()), [(stage, 0) for stage in range(comm.size)], comm.rank)
        x = torch.arange(6)
        between = (6,) if comm.size > 1 else ()
        orders, microbatches = one_f_one_b(comm.size, 2), cut_batch(x, x, 2)
        run_stage(comm, [Layers(chunk)], orders, microbatches, mean_square, between, dtype=torch.float64)
        return clip_grad_norm_(chunk.parameters(), LIMIT, comm)

    (one,) = simulate(rank, 1).results
    assert simulate(rank, 2).results == pytest.approx([one, one], rel=1e-12)


@pytest.mark.parametrize("wrapper", ["ZeRO-1", "ZeRO-2", "ZeRO-3"])
def test_sharded_replicas_count_over_the_mesh(wrapper):
    """Optimizers that shard a split network take the mesh's other communicators, and refuse to clip without."""
    norm, _ = one_process()

    def rank(comm):
        mesh = Mesh(comm, data=2, tensor=2)
        model = cut(net(), mesh.tensor)
        if wrapper == "ZeRO-3":
            model = clipping = FullyShardedDataParallel(model, mesh.data)
        else:
            stage = int(wrapper[-1])
            clipping = ShardedOptimizer(model.parameters(), mesh.data, lambda ps: torch.optim.SGD(ps, 0.1), stage)
        mean_square(model(rows().tensor_split(2)[mesh.replica])).backward()
        if wrapper == "ZeRO-3":
            model.synchronize()
        with pytest.raises(ValueError, match=r"no communicator of these was given; give every one"):
            clipping.clip(LIMIT)
        return clipping.clip(LIMIT, mesh.tensor)

    assert simulate(rank, 4).results == pytest.approx([norm] * 4, rel=1e-12)


def test_values_may_be_clipped():
    """What works element by element is right on each rank."""

    def rank(comm):
        params = tensor(comm)
        clip_grad_value_(params, 1e-3)
        first, bias, second, _ = (g.as_subclass(torch.Tensor) for g in grads(params))
        return [join(x, comm, 8, dim) for x, dim in ((first, 0), (bias, 0), (second, 1))]

    dense = net()
    mean_square(dense(rows())).backward()
    clip_grad_value_(dense.parameters(), 1e-3)
    for found in simulate(rank, 2).results:
        for x, param in zip(found, dense.parameters(), strict=False):
            torch.testing.assert_close(x, param.grad, rtol=1e-12, atol=0)


class Together(torch.optim.SGD):
    """Clips by the norm of all its parameters in each step, as some optimizers do."""

    def step(self, closure=None):
        params = [param for group in self.param_groups for param in group["params"] if param.grad is not None]
        norm = parameters_to_vector([param.grad for param in params]).norm()
        for param in params:
            param.grad.mul_((1e-3 / norm).clamp(max=1))
        return super().step(closure)


@pytest.mark.parametrize("make", [torch.optim.LBFGS, lambda ps: Together(ps, 0.1)])
def test_optimizers_that_need_all_layers_are_refused(make):
    def rank(comm):
        params = stages(comm)
        if params:
            with pytest.raises(ValueError, match="steps a parameter by what other parameters have"):
                make(params).step(lambda: torch.zeros(()))

    simulate(rank, 2)


@pytest.mark.parametrize("make", [lambda ps: torch.optim.Adafactor(ps, 0.1), lambda ps: torch.optim.SGD(ps, 0.1)])
def test_optimizers_of_single_parameters_step_stages(make):
    """A norm of one whole parameter is the same on its stage, within the optimizer's step only."""

    def rank(comm):
        params = stages(comm)
        if params:
            make(params).step()
            with pytest.raises(RuntimeError, match="layers that only this rank has"):
                torchs(params, LIMIT)

    simulate(rank, 2)


@pytest.mark.parametrize("needs_whole", [False, True])
def test_a_weight_computed_from_shares_is_refused(needs_whole):
    def rank(comm):
        layer = RowLinear.of(nn.Linear(6, 4), comm)
        if needs_whole:
            nn.utils.parametrizations.weight_norm(layer)
        else:
            nn.utils.parametrize.register_parametrization(layer, "weight", nn.Tanh())
        layer(split(rows().float(), comm, -1))

    sentence = "not those of the whole" if needs_whole else "is computed from a share of another parameter"
    with pytest.raises(RankError, match=sentence):
        simulate(rank, 2)


def test_communicators_are_needed():
    with pytest.raises(ValueError, match="was given no communicator"):
        clip_grad_norm_([], 1.0)
