"""What passes between stages, evaluation, tied weights and losses: as in one process, or refused in one sentence."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from hpcdl.comm import RankError, simulate
from hpcdl.cost.pipeline import balance
from hpcdl.ddp import DistributedDataParallel
from hpcdl.parallel.pipeline import FusedLayers, Layers, RowSpec, cut_batch, cut_layers, run_stage
from hpcdl.parallel.schedules import SCHEDULES, forward_only, one_f_one_b, v_shaped, zb_h1

WIDTH, WORDS = 6, 9


class First(nn.Module):
    """Words and their mask to hidden states, the mask, and a penalty that is one number for the microbatch."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)

    def forward(self, words, mask):
        return {"hidden": self.embedding(words), "mask": mask, "penalty": self.embedding.weight.square().mean()}


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, *, penalty, hidden, mask):
        hidden = torch.where(mask[..., None], torch.tanh(self.linear(hidden)), hidden)
        return {"mask": mask, "hidden": hidden, "penalty": penalty + self.linear.bias.square().sum()}


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, hidden, mask, penalty):
        return self.head(hidden) * mask[..., None], penalty


BETWEEN = {"hidden": RowSpec((3, WIDTH)), "mask": RowSpec((3,), torch.bool), "penalty": RowSpec((), whole=True)}


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*[make() for make in layers]).double()


def tokens(rows=5):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(WORDS, (rows, 3), generator=generator), torch.rand(rows, 3, generator=generator) > 0.3


def penalized(y, target):
    logits, penalty = y
    return cross_entropy(logits.flatten(0, 1), target.flatten()) + penalty


def gradients(p, make, microbatches, loss, between, kind=Layers, orders=zb_h1, parts=None, limits=None, **options):
    """Each parameter's gradient, and the stages' runs."""

    def rank(comm):
        net = make()
        places = [(stage, 0) for stage in range(comm.size)] if parts is None else parts
        chunks = cut_layers(net, places, comm.rank, limits)
        layers = [kind(chunk) for chunk in chunks]
        order = orders(comm.size, len(microbatches))
        run = run_stage(comm, layers, order, microbatches, loss, between, parts=places, dtype=torch.float64, **options)
        mine = {id(param) for chunk in chunks for param in chunk.parameters()}
        return run, {name: param.grad for name, param in net.named_parameters() if id(param) in mine}

    results = simulate(rank, p).results
    return {name: grad for _, mine in results for name, grad in mine.items()}, [run for run, _ in results]


def serial(net, loss):
    loss(net).backward()
    return {name: param.grad for name, param in net.named_parameters()}


@pytest.mark.parametrize("kind", [Layers, FusedLayers, functools.partial(Layers, recompute=True)])
@pytest.mark.parametrize("orders", [zb_h1, one_f_one_b])
@pytest.mark.parametrize("p", [1, 3])
def test_several_tensors_pass_by_name(p, orders, kind):
    words, mask = tokens()
    make = functools.partial(network, First, Middle, Last)
    net = make()
    whole = serial(net, lambda net: penalized(net[2](**net[1](**net[0](words, mask))), words))
    x = {"words": words, "mask": mask} if p > 1 else (words, mask)
    found, _ = gradients(p, make, cut_batch(x, words, 3), penalized, BETWEEN, kind, orders)
    torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-14)


def two(x):
    return torch.tanh(x), x.exp()


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, 4)

    def forward(self, x):
        return two(self.linear(x))


class Join(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, WIDTH)

    def forward(self, a, unused):
        return self.linear(a)


def test_a_tuple_passes_by_position():
    x = torch.randn(5, WIDTH, dtype=torch.float64)
    net = network(Pair, Join)
    whole = serial(net, lambda net: mse_loss(net[1](*net[0](x)), x))
    between = [[RowSpec((4,)), RowSpec((4,))]]
    found, _ = gradients(2, lambda: network(Pair, Join), cut_batch(x, x, 2), mse_loss, between)
    torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-14)


def linears(n=5):
    return network(*[lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())] * n)


@pytest.mark.parametrize(("p", "parts"), [(1, None), (3, None), (2, v_shaped(2))])
def test_forward_only_is_evaluation(p, parts):
    x = torch.randn(7, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        expected = linears()(x)
    chunks = 1 if parts is None else 2
    orders = functools.partial(forward_only, v=chunks)
    for loss in (mse_loss, None):
        found, runs = gradients(p, linears, cut_batch(x, x, 3), loss, (WIDTH,), orders=orders, parts=parts)
        assert not any(grad is not None for grad in found.values())
        last = next(run for run in runs if run.outputs)
        torch.testing.assert_close(torch.cat(last.outputs), expected)
        assert last.loss == (None if loss is None else pytest.approx(mse_loss(expected, x).item(), rel=1e-12))


def tied():
    net = network(*[lambda: nn.Linear(WIDTH, WIDTH)] * 4)
    net[3].weight = net[0].weight
    net[2].bias = net[1].bias
    return net


@pytest.mark.parametrize(("p", "parts", "limits"), [(1, None, None), (2, None, None), (3, None, [0, 1, 2, 4])])
def test_tied_weights_of_several_stages(p, parts, limits):
    x = torch.randn(6, WIDTH, dtype=torch.float64)
    net = tied()
    expected = [2 * grad for grad in serial(net, lambda net: mse_loss(net(x), 2 * x)).values()]

    def rank(comm):
        net = tied()
        places = [(stage, 0) for stage in range(comm.size)]
        (chunk,) = cut_layers(net, places, comm.rank, limits)
        for _ in range(2):  # gradients of batches add up
            run_stage(
                comm, [Layers(chunk)], zb_h1(p, 3), cut_batch(x, 2 * x, 3), mse_loss, (WIDTH,), dtype=torch.float64
            )
        mine = set(chunk.parameters())
        return [param.grad if param in mine else None for param in net.parameters()]

    for grads in simulate(rank, p).results:
        for grad, whole in zip(grads, expected, strict=True):
            if grad is not None:
                torch.testing.assert_close(grad, whole, rtol=1e-12, atol=1e-14)


def test_limits_of_balance_cut_layers():
    net = linears(5)
    parts = SCHEDULES["one_f_one_b"].parts(3)
    limits = balance([3, 1, 1, 1, 1], 3)
    assert [len(cut_layers(net, parts, stage, limits)[0]) for stage in range(3)] == [1, 1, 3]
    with pytest.raises(ValueError, match=r"limits is \[0, 3\]; for 3 parts of 5 layers these are 4 rising numbers"):
        cut_layers(net, parts, 0, [0, 3])


# -- losses -----------------------------------------------------------------------------------------------------------

SUMS = {
    "a module": nn.MSELoss(reduction="sum"),
    "a partial": functools.partial(mse_loss, reduction="sum"),
    "a function": lambda y, target: (y - target).square().sum(),
}


@pytest.mark.parametrize("name", SUMS)
def test_losses_that_are_sums(name):
    x = torch.randn(5, WIDTH, dtype=torch.float64)
    whole = serial(linears(), lambda net: SUMS[name](net(x), 2 * x))
    found, runs = gradients(
        2, linears, cut_batch(x, 2 * x, 3), SUMS[name], (WIDTH,), reduction="sum" if name == "a function" else None
    )
    torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-14)
    assert runs[-1].loss == pytest.approx(SUMS[name](linears()(x), 2 * x).item(), rel=1e-12)


def test_a_mean_over_tokens_that_count():
    words, mask = tokens()
    target = words.masked_fill(~mask, -100)

    def make():
        return network(lambda: nn.Embedding(WORDS, WIDTH), lambda: nn.Linear(WIDTH, WORDS))

    def loss(y, target):
        return cross_entropy(y.flatten(0, 1), target.flatten(), reduction="sum")

    whole = serial(make(), lambda net: cross_entropy(net(words).flatten(0, 1), target.flatten()))
    microbatches = cut_batch(words, target, 3)
    found, _ = gradients(2, make, microbatches, loss, (3, WIDTH), reduction="sum", total=int(mask.sum()))
    torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-14)


def contrast(y, target):
    return (y @ y.T).logsumexp(1).mean()


@pytest.mark.parametrize(
    ("loss", "options", "said"),
    [
        (lambda y, t: (y - t).square().sum(), {}, "it is no mean over rows, .*; give reduction='sum'"),
        (lambda y, t: (y - t).square().mean(), {"reduction": "sum"}, "it is no sum over rows, .*; give reduction='m"),
        (contrast, {}, "it is no mean over rows, which a pipeline adds up over microbatches; take one that is"),
        (nn.MSELoss(reduction="none"), {}, "reduction is 'none'; a pipeline adds up losses that are a 'mean' or"),
        (nn.MSELoss(), {"reduction": "sum"}, "reduction is 'sum' and the loss's own is 'mean'"),
        (lambda y, t: (y - t).square().mean(1), {}, r"the loss has returned shape \(2,\); it returns one number"),
        (lambda y, t: 0.5, {}, "the loss has returned float"),
        (None, {}, "loss is None, and the orders have backward passes"),
    ],
)
def test_losses_that_cannot_be_added_up_are_refused(loss, options, said):
    x = torch.randn(6, WIDTH, dtype=torch.float64)
    with pytest.raises(RankError, match=said):
        gradients(2, linears, cut_batch(x, 2 * x, 3), loss, (WIDTH,), **options)


@pytest.mark.parametrize("loss", [cross_entropy, nn.CrossEntropyLoss(ignore_index=2)])
def test_a_mean_that_leaves_out_targets_is_refused(loss):
    x, target = torch.randn(4, WIDTH, dtype=torch.float64), torch.tensor([0, 1, 2, -100])
    with pytest.raises(RankError, match=r"a target is ignore_index=.*reduction='sum', and give `total`"):
        gradients(1, linears, cut_batch(x, target, 2), loss, ())


# -- what is refused --------------------------------------------------------------------------------------------------


def refused_layers():
    ddp = simulate(lambda comm: DistributedDataParallel(nn.Linear(2, 2), comm), 1).results[0]
    return [
        (nn.Sequential(ddp), "the module's '0' is a DistributedDataParallel already"),
        (nn.Sequential(nn.LazyLinear(2)), r"0 \(LazyLinear\) is lazy: weight has no shape yet"),
        (nn.Linear(2, 2, device="meta"), "has weight on the meta device"),
    ]


@pytest.mark.parametrize("kind", [Layers, FusedLayers])
def test_modules_that_cannot_be_held_are_refused(kind):
    for module, said in refused_layers():
        with pytest.raises(ValueError, match=said):
            kind(module)


@pytest.mark.parametrize(
    ("between", "said"),
    [
        (
            (WIDTH + 1,),
            r"part 0 returned \(2, 6\) float64 for a microbatch of 2 rows, and `between` has \(2, 7\) float",
        ),
        (RowSpec((WIDTH,), torch.float32), r"`between` has \(2, 6\) float32 there"),
        ({"x": RowSpec((WIDTH,))}, r"part 0 returned Tensor, and `between` has the names \['x'\] there"),
        ([[RowSpec((WIDTH,))] * 2], r"and `between` has \(2, 6\) float64, \(2, 6\) float64 there"),
    ],
)
def test_what_differs_from_between_is_refused(between, said):
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    with pytest.raises(RankError, match=said):
        gradients(2, linears, cut_batch(x, x, 2), mse_loss, between)


def test_a_stage_that_returns_an_object_is_refused():
    class Object(nn.Module):
        def forward(self, x):
            return [x, object()]

    with pytest.raises(RankError, match="what SequentialPart returned has a object where a pipeline passes tensors"):
        gradients(1, lambda: network(Object), cut_batch(torch.ones(2, 2), torch.ones(2, 2), 1), mse_loss, ())
