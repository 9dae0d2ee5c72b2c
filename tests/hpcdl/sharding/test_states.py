"""Checkpoints of an optimizer's options and states, of any type and name, against an uninterrupted training."""

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.sharding import FullyShardedDataParallel, Shard, ShardedOptimizer, load, save, with_states


class Counts(torch.optim.Optimizer):
    """Momentum without bias; its state has numbers, a tuple, a list, and a key that the file uses, too."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "seen": [], "about": {"kind": ("counts", 1 + 2j, torch.float64, None)}})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["seen"].append(group["lr"])
            for param in (param for param in group["params"] if param.grad is not None):
                state = self.state[param]
                state.setdefault("means", [torch.zeros_like(param), torch.zeros_like(param)])
                state["state"] = state.get("state", torch.zeros(())) + 1
                state["step"], steps = (*state.get("step", ()), len(group["seen"])), len(state.get("step", ())) + 1
                for mean, beta in zip(state["means"], (0.9, 0.5), strict=True):
                    mean.mul_(beta).add_(param.grad, alpha=1 - beta)
                    param.sub_(mean / (1 - beta**steps), alpha=group["lr"] * len(group["seen"]) / state["state"].item())


SCHEDULES = {
    "tensor": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    "betas": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8),
    "numbers": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    "apart": lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5),
}
MAKES = {
    "tensor": lambda params: torch.optim.Adam(params, lr=torch.tensor(0.1)),
    "betas": lambda params: torch.optim.Adam(params, lr=0.1),
    "numbers": Counts,
    "apart": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
}


class Slashed(torch.nn.Module):
    """A network with names that an entry of a file could have, too."""

    def __init__(self):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        for name in ("w", "w/exp_avg", "w//state", "w/means/0", "%2F", "w//step"):
            start = torch.randn(5 if name == "w" else 1, 3, dtype=torch.float64, generator=draw)
            self.register_parameter(name, torch.nn.Parameter(start))

    def forward(self, x):
        for i, weight in enumerate(self.parameters(), 2):
            x = x * weight.mean(0) + weight.sum(0).sin() / i
        return x


def groups_of(params, kind):
    """For "apart" the last parameter, smaller than the ranks, has a rate of its own."""
    params = list(params)
    return [{"params": params[-1:], "lr": 0.3}, {"params": params[:-1]}] if kind == "apart" else params


def stepped(kind, zero, comm, path, first, last):
    """The weights, and the scheduler's state, after steps `first` to `last` of a training saved at `path`."""
    model = Slashed()
    if zero == 3:
        model = FullyShardedDataParallel(model, comm)
        optimizer = inner = MAKES[kind](groups_of(model.parameters(), kind))
    elif zero:
        optimizer = ShardedOptimizer(groups_of(model.parameters(), kind), comm, MAKES[kind], stage=zero)
        inner = optimizer.optimizer
    else:
        optimizer = MAKES[kind](groups_of(model.parameters(), kind))
    schedule = SCHEDULES[kind](optimizer)
    shards = (model if zero == 3 else optimizer).shards() if zero else {}
    if first:
        saved = load(path, comm)
        saved.fill(shards)
        saved.restore(inner, shards)
        schedule.load_state_dict(torch.load(path / "schedule", weights_only=False))
        _ = zero == 3 or optimizer.gather()
    for number in range(first, last):
        x = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        model(x.tensor_split(comm.size)[comm.rank] if zero else x).square().mean().backward()
        _ = zero == 3 and model.synchronize()
        optimizer.step()
        schedule.step()
    if zero and last == 3:
        save(path, last, with_states(shards, inner), comm)
        torch.save(schedule.state_dict(), path / "schedule")
    return model.whole_state_dict() if zero == 3 else {k: v.clone() for k, v in model.state_dict().items()}


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("kind", MAKES)
def test_every_option_and_state_is_restored_whatever_its_type_and_the_names(tmp_path, kind, zero):
    simulate(lambda comm: stepped(kind, zero, comm, tmp_path, 0, 3), 4)
    results = simulate(lambda comm: stepped(kind, zero, comm, tmp_path, 3, 5), 2).results
    right = simulate(lambda comm: stepped(kind, 0, comm, tmp_path, 0, 5), 1).results[0]
    for found in results:
        for name, value in right.items():
            torch.testing.assert_close(found[name], value, rtol=1e-7, atol=1e-9)


def test_two_optimizers_of_one_model_share_a_checkpoint(tmp_path):
    def run(comm, first):
        model = FullyShardedDataParallel(Slashed(), comm)
        params, shards = list(model.parameters()), model.shards()
        halves = [torch.optim.SGD(part, lr=0.1, momentum=0.9) for part in (params[:2], params[2:])]
        if first:
            model(torch.ones(2, 3, dtype=torch.float64)).mean().backward()
            model.synchronize()
            for rate, half in enumerate(halves, 1):
                half.step()
                half.param_groups[0]["lr"] = rate / 8
            save(tmp_path, 1, with_states(with_states(shards, halves[0]), halves[1]), comm)
        else:
            for half in halves:
                load(tmp_path, comm).restore(half, shards)
        buffers = [
            half.state.get(p, {}).get("momentum_buffer") for half in halves for p in half.param_groups[0]["params"]
        ]
        return [half.param_groups[0]["lr"] for half in halves], [len(half.state) for half in halves], buffers

    for before, after in zip(simulate(run, 2, True).results, simulate(run, 2, False).results, strict=True):
        assert after[0] == before[0] == [0.125, 0.25]
        for x, y in zip(before[2], after[2], strict=True):
            assert y is None or torch.equal(x, y)


def spoil_option(optimizer, params):
    optimizer.param_groups[0]["weigh"] = lambda x: x


def spoil_state(optimizer, params):
    optimizer.state[params[0]]["history"] = [object()]


def spoil_shape(optimizer, params):
    optimizer.state[params[0]]["row"] = torch.ones(2)


def spoil_params(optimizer, params):
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(7))]})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_option, "a function at param_groups/0/weigh"),
        (spoil_state, "a object at history/0"),
        (spoil_shape, r"state row of x has shape \(2,\), and this rank's part of the parameter \(5,\)"),
        (spoil_params, r"a tensor of shape \(7,\) that is not among the shards"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused(spoil, words):
    param = torch.nn.Parameter(torch.ones(5))
    optimizer = torch.optim.SGD([param], lr=0.1, momentum=0.9)
    spoil(optimizer, [param])
    with pytest.raises(ValueError, match=words):
        with_states({"x": Shard(param, 0, (5,))}, optimizer)


def test_a_checkpoint_without_these_states_is_refused_on_every_rank(tmp_path):
    def run(comm):
        optimizer = ShardedOptimizer(Slashed().parameters(), comm, torch.optim.Adam)
        shards = optimizer.shards()
        save(tmp_path, 1, shards, comm)
        with pytest.raises(KeyError, match=r"no './/state'; save with_states"):
            load(tmp_path, comm).restore(optimizer.optimizer, shards)
        save(tmp_path, 2, with_states(shards, optimizer.optimizer), comm)
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(4))], "lr": 0.5})
        with pytest.raises(ValueError, match="has 1 groups of options, and the optimizer 2"):
            load(tmp_path, comm).restore(optimizer.optimizer, shards)
        return True

    assert simulate(run, 2).results == [True] * 2
