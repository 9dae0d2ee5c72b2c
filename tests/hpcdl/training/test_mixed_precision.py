"""Loss scaling against torch's GradScaler and over ranks; masters keep updates that 16 bits lose."""

import math
import warnings

import pytest
import torch
from torch.amp import GradScaler

from hpcdl.comm import simulate
from hpcdl.training import Momentum
from hpcdl.training.mixed_precision import LossScaler, MasterWeights, divide, divide_all

INF = math.inf


def step(scaler, grad: float, weight=1.0):
    """One step of descent from `weight` with a gradient that is `grad` after backward."""
    w = torch.tensor([weight], requires_grad=True)
    w.grad = torch.tensor([grad])
    taken = scaler.step(Momentum([w], lr=1.0, beta=0.0), [w])
    return taken, w.item()


def test_gradients_are_divided_by_the_scale_before_the_step():
    w = torch.tensor([3.0], requires_grad=True)
    scaler = LossScaler(scale=1024.0)
    scaler.scale(w.square().sum()).backward()
    assert w.grad.item() == 1024 * 6
    assert scaler.step(Momentum([w], lr=0.5, beta=0.0), [w])
    assert w.grad.item() == 6
    assert w.item() == 0


@pytest.mark.parametrize("bad", [INF, -INF, math.nan])
def test_an_overflow_leaves_the_step_out_and_halves_the_scale(bad):
    scaler = LossScaler(scale=8.0)
    assert step(scaler, bad) == (False, 1.0)
    assert scaler.value == 4.0


def test_large_numbers_whose_sum_overflows_are_no_overflow():
    w = torch.ones(8, requires_grad=True)
    w.grad = torch.full((8,), 3e38)
    assert LossScaler(scale=1.0).unscale([w])


def test_the_scale_goes_the_way_of_torchs_grad_scaler():
    log = [1.0, 1.0, INF, 1.0, 1.0, 1.0, math.nan, 1.0, 1.0, 1.0, 1.0, 1.0, INF, INF, 1.0]
    ours = LossScaler(scale=64.0, interval=3)
    theirs = GradScaler("cpu", init_scale=64.0, growth_interval=3)
    for grad in log:
        w = torch.tensor([1.0], requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=1.0)
        theirs.scale(w.sum())
        w.grad = torch.tensor([grad])
        theirs.step(optimizer)
        theirs.update()
        _, mine = step(ours, grad)
        assert mine == w.item()
        assert ours.value == theirs.get_scale()


def test_all_ranks_take_a_step_or_none_for_one_small_message():
    def rank(comm):
        scaler = LossScaler(comm, scale=8.0)
        steps = [step(scaler, INF if comm.rank == bad else 8.0) for bad in (None, 2, None)]
        return steps, scaler.value

    simulation = simulate(rank, 5)
    assert simulation.results == [([(True, 0.0), (False, 1.0), (True, -1.0)], 4.0)] * 5
    sent = [event for event in simulation.trace if event.op in ("send", "isend", "sendrecv")]
    assert sent
    assert all(event.nbytes <= 8 for event in sent)


def test_state_goes_on_where_it_was():
    scaler, other = LossScaler(scale=64.0, interval=3), LossScaler(interval=3)
    step(scaler, 1.0), step(scaler, 1.0)
    other.load_state_dict(scaler.state_dict())
    step(other, 1.0)
    assert other.value == 128.0


def test_a_scale_never_leaves_float32():
    """Neither 1,300 overflows nor growth without end; the warning says for how long, at 50, 100, 200, ... steps."""
    scaler = LossScaler(interval=1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(1300):
            step(scaler, math.nan)
    assert {w.filename for w in told} == {__file__}
    assert [int(str(w.message).split(" for ")[1].split()[0]) for w in told] == [50, 100, 200, 400, 800]
    assert 0 < scaler.value < 1e-30
    for _ in range(1300):
        assert step(scaler, scaler.value)[0]
    assert 1e30 < scaler.value < INF


def test_a_second_unscale_divides_nothing():
    w = torch.tensor([1.0], requires_grad=True)
    scaler, optimizer = LossScaler(scale=8.0), Momentum([w], lr=1.0, beta=0.0)
    w.grad = torch.tensor([8.0])
    assert scaler.unscale([w])
    with pytest.raises(RuntimeError, match="would divide them twice"):
        scaler.unscale([w])
    other = torch.tensor([1.0], requires_grad=True)
    other.grad = torch.tensor([16.0])
    assert scaler.unscale([other]), "another optimizer's parameters"
    assert scaler.step(optimizer, [w]), "step after unscale, as GradScaler"
    assert (w.item(), other.grad.item()) == (0.0, 2.0)
    w.grad = torch.tensor([INF])
    assert not scaler.unscale([w])
    assert not scaler.step(optimizer, [w])


def test_states_pass_to_grad_scaler_and_back():
    ours, theirs = LossScaler(scale=64.0, interval=7), GradScaler("cpu")
    ours.good_steps = 3
    theirs.load_state_dict(ours.state_dict())
    assert theirs.state_dict() == ours.state_dict()
    other = LossScaler()
    other.load_state_dict(theirs.state_dict())
    assert (other.value, other.good_steps, other.interval) == (64.0, 3, 7)
    other.load_state_dict({"scale": 2.0, "good_steps": 5})
    assert (other.value, other.good_steps) == (2.0, 5)
    with pytest.raises(ValueError, match="the state has no '_growth_tracker' and no 'scale'"):
        other.load_state_dict(GradScaler("cpu", enabled=False).state_dict())


def test_sparse_and_complex_gradients_are_divided():
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1, 1, 3])).sum().backward()
    turn = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    turn.grad = torch.tensor([4 + 8j, 0j])
    scaler = LossScaler(scale=4.0)
    assert scaler.unscale([table.weight, turn])
    assert table.weight.grad.to_dense()[:, 0].tolist() == [0, 0.5, 0, 0.25]
    assert turn.grad[0].item() == 1 + 2j
    scaler.update(True)
    turn.grad = torch.tensor([complex(1, INF), 0j])
    assert not scaler.unscale([turn])


@pytest.mark.parametrize("wrong", [{"scale": 0}, {"growth": 1}, {"backoff": 1.0}, {"interval": 0}])
def test_numbers_that_would_not_move_the_scale_are_refused(wrong):
    with pytest.raises(ValueError, match=r"scale is .* growth .* backoff .* interval"):
        LossScaler(**wrong)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masters_take_in_updates_that_16_bits_lose(dtype):
    update = 2.0**-12  # less than half a gap of either format at 1
    alone = torch.ones(1, dtype=dtype)
    low = torch.ones(1, dtype=dtype, requires_grad=True)
    masters = MasterWeights([low])
    optimizer = Momentum(masters.params, lr=update, beta=0.0)
    for _ in range(2**11):
        alone.sub_(update)
        low.grad = torch.ones(1, dtype=dtype)
        masters.take_gradients()
        optimizer.step()
        masters.give_weights()
    assert alone.item() == 1.0
    assert low.item() == 0.5


def test_a_float32_parameter_is_its_own_master():
    param, frozen = torch.ones(2, requires_grad=True), torch.ones(2)
    masters = MasterWeights([param, frozen])
    assert masters.params[0] is param
    assert len(masters.params) == 1
    param.grad = torch.ones(2)
    masters.take_gradients()
    masters.give_weights()
    assert param.grad is not None


def test_a_parameter_without_a_gradient_gets_none():
    low = torch.ones(2, dtype=torch.float16, requires_grad=True)
    masters = MasterWeights([low])
    masters.params[0].grad = torch.ones(2)
    masters.take_gradients()
    assert masters.params[0].grad is None


def test_small_fp16_gradients_reach_the_masters():
    low = torch.ones(2, dtype=torch.float16, requires_grad=True)
    tiny, scaler = 2.0**-30, LossScaler(scale=2.0**15)
    scaler.scale((low.float() * tiny).sum()).backward()
    with pytest.raises(TypeError, match=r"torch\.float16.*take_gradients"):
        scaler.unscale([low])
    masters = MasterWeights([low])
    masters.take_gradients()
    assert scaler.unscale(masters.params)
    assert masters.params[0].grad.tolist() == [tiny, tiny]


@pytest.mark.parametrize("bad", [None, INF, -INF, math.nan])
def test_many_gradients_at_once_are_divided_as_one_by_one(bad):
    """What a GPU does; its kernel is there for a processor too."""

    def gradients():
        g = torch.Generator().manual_seed(0)
        found = [torch.randn(n, generator=g) for n in (1, 5, 100)] + [torch.randn(3, dtype=torch.float64, generator=g)]
        if bad is not None:
            found[2][7] = bad
        return found

    singly, at_once = gradients(), gradients()
    overflows = sum(divide(grad, 2.0**15) for grad in singly)
    assert (divide_all(at_once, 2.0**15) > 0) == (overflows > 0) == (bad is not None)
    for ours, theirs in zip(at_once, singly, strict=True):
        assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())


@pytest.mark.gpu
def test_gradients_on_a_gpu_are_scaled_as_here(need):
    need("gpu", torch.cuda.is_available(), "the kernel that divides all gradients")
    w = torch.ones(3, device="cuda", requires_grad=True)
    w.grad = torch.full((3,), 16.0, device="cuda")
    scaler = LossScaler(scale=8.0)
    assert scaler.unscale([w])
    assert w.grad.tolist() == [2.0] * 3
    scaler.update(True)
    w.grad[1] = INF
    assert not scaler.unscale([w])


def halves(zero_grad):
    """The weights after five steps of a layer in bfloat16, with gradients cleared by `zero_grad(model, optimizer)`."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3).bfloat16()
    masters = MasterWeights(model.parameters())
    optimizer = torch.optim.SGD(masters.params, lr=0.1)
    for _ in range(5):
        zero_grad(model, optimizer)
        model(torch.randn(8, 4).bfloat16()).float().square().mean().backward()
        masters.take_gradients()
        optimizer.step()
        masters.give_weights()
    return masters.params


def test_gradients_of_a_step_are_gone_in_the_next_whoever_clears_them():
    ways = [lambda model, _: model.zero_grad(), lambda _, optimizer: optimizer.zero_grad(), lambda *_: None]
    first, *others = map(halves, ways)
    for weights in others:
        assert all(map(torch.equal, weights, first))


def test_weights_that_are_loaded_reach_the_masters():
    model = torch.nn.Linear(4, 3).bfloat16()
    masters = MasterWeights(model.parameters())
    sevens = {name: torch.full_like(x, 7.0) for name, x in model.state_dict().items()}
    model.load_state_dict(sevens)
    masters.take_gradients()
    masters.give_weights()
    assert all((x == 7.0).all() for x in (*model.parameters(), *masters.params))
    model.load_state_dict(sevens)
    with pytest.raises(RuntimeError, match=r"loaded or set.*before take_gradients"):
        masters.give_weights()


def test_a_parameter_thawed_later_is_refused():
    low, frozen = torch.ones(2, dtype=torch.float16, requires_grad=True), torch.ones(2, dtype=torch.float16)
    masters = MasterWeights([low, frozen])
    frozen.requires_grad_()
    with pytest.raises(RuntimeError, match=r"1 of the parameters.*make MasterWeights.*again"):
        masters.take_gradients()


@pytest.mark.parametrize(("spoilt", "interval"), [(True, 2000), (False, 1)], ids=["it halves", "it doubles"])
def test_a_second_step_divides_by_the_scale_that_its_loss_had(spoilt, interval):
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    scaler = LossScaler(scale=1024.0, interval=interval)
    scaler.scale((a + 3 * b).sum()).backward()
    if spoilt:
        a.grad[0] = INF
    scaler.step(torch.optim.SGD([a], 1.0), [a])
    assert scaler.value != 1024.0
    scaler.step(torch.optim.SGD([b], 1.0), [b])
    assert b.tolist() == [-2.0, -2.0]
