"""Weights of split layers outside their layers: sums are right in a loss, what needs the whole is refused."""

import copy
import io

import pytest
import torch
from torch import nn

from hpcdl.comm import simulate
from hpcdl.parallel import clip_grad_norm_, sum_gradients
from hpcdl.parallel.tensor import ColumnLinear, RowLinear, VocabularyEmbedding, join
from hpcdl.parallel.tensor import copy as copy_to_ranks
from hpcdl.parallel.tensor.weights import ElementsOfShare, ShareOfWeight, SumOfShares, local_share

OUTSIDE = "only this rank's share of a split layer's weight"
SUMMED = "sums only this rank's shares of split weights"


def dense() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def split(comm) -> nn.Sequential:
    net = dense()
    return nn.Sequential(ColumnLinear.of(net[0], comm), nn.Tanh(), RowLinear.of(net[2], comm))


def rows() -> torch.Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def trained(model: nn.Module, penalty, make) -> nn.Module:
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        (model(rows()).square().mean() + 0.1 * penalty(list(model.parameters()))).backward()
        optimizer.step()
    return model


PENALTIES = {
    "squares": lambda ps: sum(p.pow(2).sum() for p in ps),
    "magnitudes": lambda ps: torch.stack([p.abs().sum() for p in ps]).mean(),
    "distance": lambda ps: nn.functional.mse_loss(ps[0], torch.ones_like(ps[0]), reduction="sum"),
    "sums of rows": lambda ps: ps[0].square().sum(1).sum(),
    "dot": lambda ps: torch.dot(ps[0].flatten(), ps[0].flatten()),
}
OPTIMIZERS = {
    "momentum": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
    "foreach": lambda ps: torch.optim.AdamW(ps, 0.1, foreach=True),
    "loop": lambda ps: torch.optim.AdamW(ps, 0.1, foreach=False),
    "fused": lambda ps: torch.optim.AdamW(ps, 0.1, fused=True),
}


@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_sums_over_elements_are_right(penalty, p):
    check(penalty, OPTIMIZERS["momentum"], p)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers_step_shares(make):
    check(PENALTIES["squares"], make, 2)


def check(penalty, make, p):
    expected = trained(dense(), penalty, make)

    def rank(comm):
        model = trained(split(comm), penalty, make)
        return join(model[0].weight, comm, 7, 0).detach(), join(model[2].weight, comm, 7, 1).detach()

    for found in simulate(rank, p).results:
        for x, layer in zip(found, (expected[0], expected[2]), strict=True):
            torch.testing.assert_close(x, layer.weight.detach(), rtol=1e-12, atol=1e-12)


REFUSED = {
    "norm": lambda w: w.norm(),
    "norm by torch.func": lambda w: torch.func.grad(torch.norm)(w),
    "sum by torch.func": lambda w: torch.func.vmap(torch.sum)(w.detach()),
    "norm without gradient": lambda w: w.detach().norm(),
    "sum without gradient": lambda w: w.data.abs().sum(),
    "largest": lambda w: w.abs().max(),
    "mean": lambda w: w.square().mean(),
    "product": lambda w: rows() @ w.T,
    "linear": lambda w: nn.functional.linear(rows(), w),
    "singular values": lambda w: torch.linalg.svdvals(w),
    "softmax": lambda w: w.softmax(0),
    "first row": lambda w: w[0],
    "first row set": lambda w: w.data.__setitem__(0, 1.0),
    "rows": list,
    "broadcast": lambda w: torch.broadcast_tensors(w, torch.ones(1))[0].norm(),
    "pairs": lambda w: w[:, None] - w[None],
    "norms by foreach": lambda w: torch._foreach_norm([w]),
    "numpy": lambda w: w.detach().numpy(),
    "dropout": lambda w: nn.functional.dropout(w),
    "overflow": lambda w: torch.isnan(w).any(),
    "identity": nn.init.eye_,
    "another tensor's gradient": lambda w: w * torch.ones((), dtype=w.dtype, requires_grad=True),
    "one vector's norm": lambda w: nn.utils.parameters_to_vector([w]).norm(),
    "whole weight copied": lambda w: w.data.copy_(torch.ones(7, 5)),
}
OF_SUMS = {
    "read": lambda x: x.item(),
    "formatted": lambda x: f"{x:.2f}",
    "compared": lambda x: x > 1,
    "root": lambda x: x.sqrt(),
    "square": lambda x: x * x,
    "divisor": lambda x: 1 / x,
    "learned factor": lambda x: torch.ones((), dtype=x.dtype, requires_grad=True) * x,
    "copied": lambda x: x.detach().numpy(),
}


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED)
def test_what_needs_the_whole_weight_is_refused(use):
    def rank(comm):
        with pytest.raises(RuntimeError, match=f"{OUTSIDE}|of torch.func do not reach other ranks"):
            use(split(comm)[0].weight)

    simulate(rank, 2)


@pytest.mark.parametrize("use", OF_SUMS.values(), ids=OF_SUMS)
def test_a_sum_is_not_read(use):
    def rank(comm):
        model = split(comm)
        for summed in (model[0].weight.square().sum(), model(rows()).mean() + model[0].weight.abs().sum()):
            assert type(summed) is SumOfShares
            with pytest.raises(RuntimeError, match=SUMMED):
                use(summed)

    simulate(rank, 2)


def test_a_loss_is_guarded_by_all_its_names():
    def rank(comm):
        model = split(comm)
        loss = first = model(rows()).mean()
        loss += model[0].weight.square().sum()
        with pytest.raises(RuntimeError, match=SUMMED):
            first.item()
        loss.backward()

    simulate(rank, 2)


def test_joined_weights_are_whole():
    net = dense()
    (net(rows()).mean() + net[0].weight.norm()).backward()

    def rank(comm):
        model = split(comm)
        norm = join(model[0].weight, comm, 7, 0).norm()
        assert norm.item() == pytest.approx(net[0].weight.norm().item(), rel=1e-12)
        (model(rows()).mean() + norm).backward()
        return join(local_share(model[0].weight.grad.as_subclass(torch.Tensor)), comm, 7, 0)

    for found in simulate(rank, 2).results:
        torch.testing.assert_close(found, net[0].weight.grad, rtol=1e-12, atol=1e-12)


def test_shares_are_copied_and_saved_as_before():
    def rank(comm):
        model, file = split(comm), io.BytesIO()
        weight = model[0].weight
        assert type(weight) is type(copy.deepcopy(weight)) is ShareOfWeight
        assert type(copy.deepcopy(weight.detach())) is type(model.state_dict()["0.weight"]) is ElementsOfShare
        torch.save({"state": model.state_dict(), "weight": weight, "detached": weight.detach()}, file)
        file.seek(0)
        found = torch.load(file, weights_only=True)
        assert type(found["weight"]) is nn.Parameter
        assert type(found["detached"]) is type(found["state"]["0.weight"]) is torch.Tensor
        model.load_state_dict(found["state"])
        for each in (weight, found["weight"], found["detached"]):
            torch.testing.assert_close(each, model[0].weight, rtol=0, atol=0)
        return type(model.float()[0].weight) is ShareOfWeight

    assert simulate(rank, 2).results == [True, True]


def test_shares_are_initialized():
    def rank(comm):
        weight = split(comm)[0].weight
        for init in (nn.init.normal_, nn.init.kaiming_uniform_, nn.init.orthogonal_, nn.init.trunc_normal_):
            init(weight)
        nn.init.constant_(weight, 2)
        return local_share(weight).sum().item() == 2 * weight.numel()

    assert simulate(rank, 2).results == [True, True]


def test_layers_of_ones_own_take_shares():
    def rank(comm):
        model = split(comm)
        h = nn.functional.linear(copy_to_ranks(rows(), comm), local_share(model[0].weight), local_share(model[0].bias))
        torch.testing.assert_close(h, model[0](rows()), rtol=0, atol=0)
        h.sum().backward()
        return type(model[0].weight.grad).__name__

    assert simulate(rank, 2).results == ["OfSplitLayer"] * 2


@pytest.mark.parametrize("layer", [0, 2])
def test_a_sum_of_shares_is_no_input(layer):
    def rank(comm):
        model = split(comm)
        x = torch.ones(4, 5 if layer == 0 else model[2].weight.shape[1], dtype=torch.float64)
        with pytest.raises(RuntimeError, match=SUMMED):
            model[layer](x + model[0].weight.square().sum())

    simulate(rank, 2)


def test_tensors_like_a_share_are_plain():
    def rank(comm):
        weight = split(comm)[0].weight
        x = torch.ones(weight.numel(), dtype=weight.dtype)
        made = [x.to(weight), x.view_as(weight), x.type_as(weight), torch.zeros_like(weight), weight.new_ones(2)]
        return {type(each) for each in (x, *made)} == {torch.Tensor}

    assert simulate(rank, 2).results == [True, True]


def test_one_rank_has_whole_weights():
    simulate(lambda comm: split(comm)[0].weight.norm().item(), 1)


class Words:
    """An embedding with sparse gradients, and five of its ten words."""

    dense = staticmethod(lambda: nn.Embedding(10, 6, sparse=True, dtype=torch.float64))
    tokens = torch.tensor([0, 3, 7, 7, 9])

    @classmethod
    def gradient(cls, model: nn.Module) -> torch.Tensor:
        model(cls.tokens).square().sum().backward()
        return model.weight.grad


def test_sparse_gradients_are_clipped_over_all_ranks():
    torch.manual_seed(0)
    dense = Words.dense()
    norm = Words.gradient(dense).to_dense().norm().item()

    def rank(comm):
        model = VocabularyEmbedding.of(dense, comm)
        Words.gradient(model)
        return clip_grad_norm_(model.parameters(), norm / 2, comm), clip_grad_norm_(model.parameters(), norm, comm)

    for before, after in simulate(rank, 2).results:
        assert before == pytest.approx(norm, rel=1e-12)
        assert after == pytest.approx(norm / 2, rel=1e-5)


@pytest.mark.parametrize(
    "use",
    [lambda g: g.norm(), lambda g: g.coalesce().values().norm(), lambda g: g.to_dense().sum(), torch.sparse.sum],
    ids=["norm", "values", "dense", "sum"],
)
def test_sparse_gradients_of_shares_are_guarded(use):
    def rank(comm):
        gradient = Words.gradient(VocabularyEmbedding.of(Words.dense(), comm))
        with pytest.raises(RuntimeError, match="share of a split layer"):
            use(gradient)

    simulate(rank, 2)


def test_sparse_gradients_are_not_summed():
    def rank(comm):
        model = VocabularyEmbedding.of(Words.dense(), comm)
        Words.gradient(model)
        with pytest.raises(ValueError, match=r"sum_gradients: a gradient of shape .* is sparse"):
            sum_gradients(model.parameters(), comm)

    simulate(rank, 2)


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.Muon])
def test_optimizers_without_sparse_steps_are_refused(make):
    def rank(comm):
        model = VocabularyEmbedding.of(Words.dense(), comm)
        optimizer = make(model.parameters(), 0.1)
        Words.gradient(model)
        with pytest.raises(ValueError, match="does not step rows of an embedding by their sparse gradients"):
            optimizer.step()

    simulate(rank, 2)
