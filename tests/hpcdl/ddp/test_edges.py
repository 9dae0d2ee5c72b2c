"""DistributedDataParallel where a guess would be wrong: who counts samples, what may be wrapped, copied and saved."""

import copy
import io
from functools import partial

import pytest
import torch
from torch import nn

from hpcdl.comm import RankError, simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.ddp.agreement import require_same
from hpcdl.ddp.naive import fingerprint


def wrap(module, comm, **options):
    return DistributedDataParallel(module, comm, **options)


def refused(module, said, p=2, **options):
    """Wrapping is refused on every rank with the same sentence."""

    def rank(comm):
        with pytest.raises(ValueError, match=said):
            wrap(module(), comm, **options)

    simulate(rank, p)


# -- who counts the samples -------------------------------------------------------------------------------------------


class OfDict(nn.Module):
    """y = w x over a batch that comes as a dict."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.0))

    def forward(self, batch):
        return self.w * batch["x"]


PARTS = torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([2.0])  # the mean of all is 6 / 5, that of the means 1.5


def test_samples_in_a_dict_are_counted_as_the_user_says():
    def rank(comm):
        ddp = wrap(OfDict(), comm, samples=lambda batch: len(batch["x"]))
        ddp({"x": PARTS[comm.rank]}).mean().backward()
        ddp.synchronize()
        return ddp.module.w.grad.item()

    assert simulate(rank, 2).results == [pytest.approx(1.2)] * 2


@pytest.mark.parametrize(
    ("inputs", "given"), [(({"x": PARTS[0]},), "dict"), (([PARTS[0]],), "list"), ((torch.tensor(1.0),), "Tensor")]
)
def test_inputs_without_a_length_are_not_guessed(inputs, given):
    def rank(comm):
        wrap(OfDict(), comm)(*inputs)

    with pytest.raises(RankError, match=f"was given {given}: no tensor whose length .* samples=lambda batch"):
        simulate(rank, 1)


class SequenceFirst(nn.Module):
    """The mean over sequences of what a recurrent layer says at their end; x is (length, samples, 1)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.RNN(1, 2)

    def forward(self, x):
        return self.layer(x)[0][-1]


def test_uneven_shares_of_sequence_first_inputs():
    x = torch.linspace(-1, 1, 15).view(3, 5, 1)
    alone = SequenceFirst()
    alone(x).mean().backward()

    def rank(comm):
        ddp = wrap(SequenceFirst(), comm, samples=lambda x: x.shape[1])
        ddp(x[:, :4] if comm.rank == 0 else x[:, 4:]).mean().backward()
        ddp.synchronize()
        return [param.grad for param in ddp.module.parameters()]

    with torch.random.fork_rng():
        for grads in simulate(rank, 2).results:
            for grad, param in zip(grads, alone.parameters(), strict=True):
                torch.testing.assert_close(grad, param.grad)


def test_a_sequence_first_layer_is_refused_until_the_user_counts():
    refused(SequenceFirst, r"layer \(RNN\) has batch_first=False.*samples=lambda x: x.shape\[1\]")
    refused(lambda: nn.LSTM(2, 2), r"the module \(LSTM\) has batch_first=False")
    simulate(lambda comm: wrap(nn.LSTM(2, 2, batch_first=True), comm), 2)


@pytest.mark.parametrize("n", [-1, 2.0, None])
def test_a_count_that_is_none_is_refused(n):
    def rank(comm):
        wrap(nn.Linear(1, 1), comm, samples=lambda x: n)(torch.ones(2, 1))

    with pytest.raises(RankError, match=rf"samples\(...\) returned {n}; it returns this rank's number"):
        simulate(rank, 1)


# -- what may be wrapped ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [nn.ReLU, lambda: nn.Linear(2, 2).requires_grad_(False)], ids=["none", "frozen"])
def test_a_module_without_trainable_parameters_is_refused_for_that_reason(module):
    refused(module, "has no parameter that requires a gradient, so there is nothing to average")


def test_ranks_that_both_have_nothing_agree():
    simulate(lambda comm: require_same("another model", [], comm, ""), 3)

    def rank(comm):
        require_same("another model", ["a"] * comm.rank, comm, "build the same")

    with pytest.raises(RankError, match="rank 1 has another model than rank 0: 1 entries instead of 0"):
        simulate(rank, 2)


def test_a_wrapper_in_a_wrapper_is_refused():
    def rank(comm, outer):
        with pytest.raises(ValueError, match=r"is a DistributedDataParallel already.*wrap the whole model once"):
            wrap(outer(wrap(nn.Linear(2, 2), comm)), comm)

    simulate(partial(rank, outer=lambda inner: inner), 2)
    simulate(partial(rank, outer=lambda inner: nn.Sequential(inner, nn.ReLU())), 2)


class WithState(nn.Linear):
    """A layer with state that is not a tensor."""

    def get_extra_state(self):
        return {"calls": 7}

    def set_extra_state(self, state):
        self.calls = state["calls"]


def test_a_module_with_a_state_of_its_own_is_trained():
    def rank(comm):
        torch.manual_seed(comm.rank)
        ddp = wrap(WithState(2, 1), comm)
        ddp(torch.ones(1, 2)).mean().backward()
        ddp.synchronize()
        return fingerprint(ddp.module), ddp.state_dict()["module._extra_state"]

    with torch.random.fork_rng():
        first, second = simulate(rank, 2).results
    assert first == second
    assert first[1] == {"calls": 7}


def test_buffer_of_another_shape_is_named():
    def rank(comm):
        module = nn.Linear(1, 1)
        module.register_buffer("mask", torch.zeros(2 + comm.rank), persistent=False)
        wrap(module, comm)

    with pytest.raises(RankError, match=r"mask \(3,\) float32 instead of mask \(2,\) float32"):
        simulate(rank, 2)


def test_buffers_registered_after_wrapping_are_rank_0s_too():
    def rank(comm):
        net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        ddp = wrap(net, comm)
        net[0].register_buffer("seen", torch.tensor([float(comm.rank + 5)]))
        ddp(torch.ones(2, 2) * comm.rank).mean().backward()
        ddp.synchronize()
        return net[0].seen.item(), net[1].running_mean.tolist()

    results = simulate(rank, 3).results
    assert results == [results[0]] * 3
    assert results[0][0] == 5.0


# -- what may be copied and saved -------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda ddp: torch.save(ddp, io.BytesIO())])
def test_a_copy_of_the_wrapper_is_refused_and_its_module_is_copied(copied):
    def rank(comm):
        ddp = wrap(nn.Linear(2, 1), comm)
        ddp(torch.ones(1, 2)).mean().backward()
        ddp.synchronize()
        with pytest.raises(TypeError, match=r"cannot be copied or pickled.*copy or save ddp.module"):
            copied(ddp)
        file = io.BytesIO()
        torch.save(ddp.module, file)
        file.seek(0)
        saved, mine = torch.load(file, weights_only=False), copy.deepcopy(ddp.module)
        return fingerprint(saved) == fingerprint(mine) == fingerprint(ddp.module)

    assert simulate(rank, 2).results == [True, True]


def test_state_dicts_have_torchs_keys_and_load_strictly():
    def rank(comm):
        ddp = wrap(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), comm)
        torchs = {f"module.{name}": value for name, value in ddp.module.state_dict().items()}
        assert list(ddp.state_dict()) == list(torchs)
        return str(ddp.load_state_dict(torchs, strict=True))

    assert simulate(rank, 1).results == ["<All keys matched successfully>"]


# -- backward ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "bucketed"])
@pytest.mark.parametrize("module", [nn.Linear(2, 1), nn.Linear(2, 1, bias=False)], ids=["shared", "alone"])
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_a_graph_through_the_mean_is_refused(module, overlap):
    def rank(comm):
        ddp = wrap(copy.deepcopy(module), comm, overlap=overlap)
        ddp(torch.ones(1, 2)).square().sum().backward(create_graph=True)
        ddp.synchronize()

    with pytest.raises(RankError, match=r"the mean over ranks keeps no graph; take the inner gradients by torch.auto"):
        simulate(rank, 1)


def test_a_gradient_penalty_by_autograd_grad_is_the_one_of_one_machine():
    x = torch.linspace(-1, 1, 8).view(4, 2)

    def penalized(call, x):
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(call(x).pow(2).sum(), x, create_graph=True)
        return slope.pow(2).sum(1).mean()

    def model():
        torch.manual_seed(3)
        return nn.Linear(2, 2)

    def rank(comm):
        ddp = wrap(model(), comm)
        penalized(ddp, x[3 * comm.rank : 3 + comm.rank]).backward()
        ddp.synchronize()
        return ddp.module.weight.grad

    with torch.random.fork_rng():
        alone = model()
        penalized(alone, x).backward()
        for grad in simulate(rank, 2).results:
            torch.testing.assert_close(grad, alone.weight.grad)


class Branches(nn.Module):
    """Two layers; each step uses one of them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(2))

    def forward(self, x, which):
        return self.layers[which](x)


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "bucketed"])
def test_one_forgotten_synchronize_is_noticed_at_the_next_forward(overlap):
    def rank(comm):
        ddp = wrap(Branches(), comm, overlap=overlap)
        ddp(torch.ones(2, 1), 0).mean().backward()
        ddp.zero_grad()
        ddp(torch.ones(2, 1), 1).mean().backward()
        ddp.synchronize()

    with pytest.raises(RankError, match=r"the last backward was not followed by synchronize\(\)"):
        simulate(rank, 2)


def test_two_forward_passes_before_one_backward_are_one_step():
    def rank(comm):
        ddp = wrap(nn.Linear(1, 1, bias=False), comm)
        (ddp(torch.ones(2, 1)).mean() + ddp(torch.ones(3, 1)).mean()).backward()
        ddp.synchronize()
        return ddp.reducer.total, ddp.module.weight.grad.item()

    assert simulate(rank, 2).results == [(10, 2.0)] * 2
