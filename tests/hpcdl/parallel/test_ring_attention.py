"""Ring attention and Ulysses against dense attention: values and gradients, bytes, the memory of blocks and scores."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from hpcdl.comm import RankError, simulate
from hpcdl.memory import meter
from hpcdl.parallel.sequence import ORDERS, fast_ring_attention, positions, ring_attention, ulysses_attention

BATCH, HEADS, WIDTH = 2, 3, 4
FORMS = {"plain": ring_attention, "fast": fast_ring_attention}


def inputs(length, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (4, BATCH, HEADS, length, WIDTH)  # q, k, v and the gradient of the result
    return torch.randn(shape, generator=generator, dtype=torch.float64) * torch.tensor([scale, 1, 1, 1]).view(
        4, 1, 1, 1, 1
    )


def dense(x, causal):
    """Result and gradients, by definition."""
    q, k, v = (t.clone().requires_grad_() for t in x[:3])
    scores = q @ k.mT / math.sqrt(WIDTH)
    if causal:
        scores = scores.masked_fill(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1), -math.inf)
    y = scores.softmax(-1) @ v
    return torch.stack([y, *torch.autograd.grad(y, (q, k, v), x[3])]).detach()


def parallel(form, x, p, causal=False, order=None):
    """The same, put together from what `p` ranks find; and the run."""
    length, options = x.shape[3], {"order": order} if order else {}

    def rank(comm):
        mine = positions(order or "contiguous", length, comm.size, comm.rank)
        q, k, v, dy = (t[:, :, mine].clone() for t in x)
        for t in (q, k, v):
            t.requires_grad_()
        y = form(q, k, v, comm, causal=causal, length=length, **options)
        y.backward(dy)
        return mine, torch.stack([y.detach(), q.grad, k.grad, v.grad])

    run = simulate(rank, p)
    whole = torch.full_like(x, torch.nan)
    for mine, found in run.results:
        whole[:, :, :, mine] = found
    return whole, run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("p", "length"), [(1, 5), (2, 8), (2, 7), (3, 10), (4, 9), (5, 11), (5, 3)])
def test_ring_attention_is_dense_attention(form, order, causal, p, length):
    x = inputs(length)
    found, _ = parallel(FORMS[form], x, p, causal, order)
    torch.testing.assert_close(found, dense(x, causal), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", [*FORMS, "ulysses"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients_in_fewer_digits(form, dtype, causal):
    """Within a few roundings of the exact ones for the same inputs."""
    x = inputs(9).to(dtype)
    function = {**FORMS, "ulysses": ulysses_attention}[form]
    found, _ = parallel(function, x, 3, causal)
    near = 16 * torch.finfo(dtype).eps
    assert found.dtype is dtype
    torch.testing.assert_close(found.double(), dense(x.double(), causal), rtol=near, atol=near)


@pytest.mark.parametrize("form", FORMS)
def test_under_autocast_after_a_linear_layer(form):
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(WIDTH, 3 * WIDTH), inputs(6)[0].float()

    def run(comm):
        mine = torch.nn.Linear(WIDTH, 3 * WIDTH)
        mine.load_state_dict(layer.state_dict())
        with torch.autocast("cpu", torch.bfloat16):
            y = FORMS[form](*mine(x.tensor_split(comm.size, 2)[comm.rank]).chunk(3, -1), comm)
        y.float().square().sum().backward()
        return mine.weight.grad

    with torch.autocast("cpu", torch.bfloat16):
        y = scaled_dot_product_attention(*layer(x).chunk(3, -1))
    y.float().square().sum().backward()
    torch.testing.assert_close(sum(simulate(run, 2).results), layer.weight.grad, rtol=0.02, atol=0.1)


def test_dense_attention_by_definition_is_torchs():
    x = inputs(9)
    torch.testing.assert_close(dense(x, True)[0], scaled_dot_product_attention(*x[:3], is_causal=True))


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_of_a_sum_is_one_number_seen_everywhere(form):
    x = inputs(8)
    x[3] = 1.0

    def rank(comm):
        mine = positions("striped", 8, comm.size, comm.rank)
        q, k, v = (t[:, :, mine].clone().requires_grad_() for t in x[:3])
        FORMS[form](q, k, v, comm, causal=True, order="striped").sum().backward()
        return mine, torch.stack([q.grad, k.grad, v.grad])

    for mine, found in simulate(rank, 2).results:
        torch.testing.assert_close(found, dense(x, True)[1:, :, :, mine], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_large_scores_overflow_nowhere(form):
    x = inputs(8, scale=1e4)
    assert (x[0] @ x[1].mT).abs().max() > 1e4
    found, _ = parallel(FORMS[form], x, 3, causal=True)
    torch.testing.assert_close(found[0], dense(x, True)[0], rtol=1e-11, atol=1e-11)
    assert found.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_each_rank_sends_its_blocks_around(form, p):
    block = BATCH * HEADS * 4 * WIDTH * 8  # bytes of 4 tokens
    _, run = parallel(FORMS[form], inputs(4 * p), p)
    sent = [event for event in run.trace if event.op == "send"]
    assert {event.nbytes for event in sent} <= {2 * block}
    assert all(event.peer == (event.rank + 1) % p for event in sent)
    assert run.bytes_sent == [3 * (p - 1) * 2 * block] * p


def test_a_rank_holds_few_blocks_and_the_scores_of_two():
    p, length = 4, 64
    block = BATCH * HEADS * (length // p) * WIDTH * 8
    scores = BATCH * HEADS * (length // p) ** 2 * 8
    x = inputs(length)[:3]

    def rank(comm):
        q, k, v = (t[:, :, positions("contiguous", length, p, comm.rank)].clone() for t in x)
        with meter(q, k, v) as m:
            ring_attention(q, k, v, comm)
            return m.highest["temporaries"]

    for held in simulate(rank, p).results:
        few = 6 * BATCH * HEADS * (length // p) * 8  # numbers of each query: sums, maxima
        assert held <= 6 * block + scores + few  # the result, two blocks here, two on their way, a part of the result


def test_blocks_without_a_score_that_counts_are_passed_over():
    p, x = 4, inputs(16)[:3]

    def rank(comm):
        q, k, v = (t[:, :, positions("contiguous", 16, p, comm.rank)].clone() for t in x)
        with FlopCounterMode(display=False) as counter:
            ring_attention(q, k, v, comm, causal=True)
        return counter.get_total_flops()

    flops = simulate(rank, p).results
    assert flops == [(r + 1) * flops[0] for r in range(p)]


@pytest.mark.parametrize(("p", "length"), [(2, 8), (3, 10), (5, 64)])
def test_stripes_share_the_work_of_a_causal_mask(p, length):
    def pairs(order):
        return [int((positions(order, length, p, r) + 1).sum()) for r in range(p)]  # token i sees i + 1 keys

    assert sum(pairs("striped")) == sum(pairs("contiguous")) == length * (length + 1) // 2
    assert max(pairs("striped")) - min(pairs("striped")) <= length + length / p
    assert max(pairs("contiguous")) > max(pairs("striped"))


# -- Ulysses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("p", "length"), [(1, 5), (2, 8), (2, 7), (3, 10), (4, 9), (5, 11)])
def test_ulysses_is_dense_attention(causal, p, length):
    x = inputs(length)  # 3 heads: with 4 and 5 ranks some have none
    found, _ = parallel(ulysses_attention, x, p, causal)
    torch.testing.assert_close(found, dense(x, causal), rtol=1e-12, atol=1e-12)


def test_ulysses_sends_what_is_for_others_of_four_blocks_each_way():
    p, length = 3, 12
    _, run = parallel(ulysses_attention, inputs(length), p)
    block = BATCH * HEADS * (length // p) * WIDTH * 8
    assert run.bytes_sent == [2 * 4 * block * (p - 1) // p] * p
    assert sum(event.op == "send" for event in run.trace) == 2 * 2 * p * (p - 1)


def test_with_ulysses_a_rank_holds_all_tokens_of_its_heads_alone():
    def rank(comm):
        x = torch.randn(3, 1, 8, 64, 16, dtype=torch.float64).tensor_split(comm.size, 3)[comm.rank].clone()
        with meter(x) as m:
            ulysses_attention(*x, comm)
            return m.highest["temporaries"] + m.highest["activations"]

    whole, *_ = simulate(rank, 1).results
    assert max(simulate(rank, 4).results) < 0.3 * whole


# -- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [*FORMS.values(), ulysses_attention])
def test_a_share_of_another_length_is_refused(form):
    def rank(comm):
        q = torch.zeros(1, 1, 3, 2)
        return form(q, q, q, comm, length=7)

    with pytest.raises(RankError, match=r"rank 0: q, k, v are .* with this rank's 4 of 7 tokens"):
        simulate(rank, 2)


@pytest.mark.parametrize("form", FORMS.values())
def test_an_unknown_order_is_refused(form):
    x = torch.zeros(1, 1, 3, 2)
    with pytest.raises(RankError, match=r"order is 'zigzag'; the orders are contiguous, striped"):
        simulate(lambda comm: form(x, x, x, comm, order="zigzag"), 2)


@pytest.mark.parametrize("attention", [ring_attention, fast_ring_attention])
@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_made_where_tensors_are_made_by_default(attention, order):
    """Inputs may be on a GPU while the default is the processor; here they are on the processor, and it is not."""

    def rank(comm):
        q = torch.randn(2, 2, 8, 4, requires_grad=True)
        with torch.device("meta"):
            attention(q, q, q, comm, causal=True, order=order).sum().backward()
        return q.grad.isfinite().all()

    assert all(simulate(rank, 2).results)
