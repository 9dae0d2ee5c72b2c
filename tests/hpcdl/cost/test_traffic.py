"""Messages of a layer: shards, context, experts."""

import pytest

from hpcdl.cost import collectives
from hpcdl.cost.blocks import Pass
from hpcdl.cost.layout import Layout
from hpcdl.cost.topology import Link, Nodes, Torus
from hpcdl.cost.traffic import HELD, all_to_all, gather, layer_messages, layer_weights
from hpcdl.cost.work import Transformer

GPT = Transformer(4, 1024, 512, 5000, 16)
FAST, SLOW = Link(1e-6, 1e-11), Link(1e-5, 1e-9)
NETWORK = Nodes(8, FAST, SLOW)
LONG, NONE = Pass(1.0, 1.0, 1.0, 0.5), Pass(0.0, 0.0, 0.0)


def test_a_gather_is_half_an_all_reduce():
    n = 1 << 20
    assert gather(NETWORK, 8, 1, n) == pytest.approx(collectives.all_gather(8, n, *FAST))
    assert gather(NETWORK, 1, 1, n) == 0


@pytest.mark.parametrize("computed", [LONG, NONE], ids=["hidden", "open"])
def test_shards_are_gathered_twice_and_scattered_once(computed):
    """ZeRO-3 sends 3/2 of what summing gradients sends; hidden messages hold some of the processors."""
    layout = Layout(data=8, zero=3, itemsize=2)
    forward, backward = layer_messages(GPT, NETWORK, layout, 1, computed)
    each = gather(NETWORK, 8, 1, 2 * layer_weights(GPT, layout))
    open_share = HELD if computed is LONG else 1.0
    assert (forward, backward) == pytest.approx((open_share * each, open_share * 2 * each))


def test_without_prefetch_the_backward_gather_is_in_the_open():
    layouts = [Layout(data=8, zero=3, itemsize=2, prefetch=ahead) for ahead in (True, False)]
    each = gather(NETWORK, 8, 1, 2 * layer_weights(GPT, layouts[0]))
    ahead, late = (layer_messages(GPT, NETWORK, layout, 1, LONG) for layout in layouts)
    assert ahead[0] == late[0]
    assert late[1] - ahead[1] == pytest.approx((1 - HELD) * each)


def test_shards_within_a_node_stay_there():
    far, near = (Layout(data=64, zero=3, itemsize=2, shards=shards) for shards in (None, 8))
    assert sum(layer_messages(GPT, NETWORK, near, 1, NONE)) < sum(layer_messages(GPT, NETWORK, far, 1, NONE)) / 10
    assert layer_messages(GPT, NETWORK, Layout(data=8, zero=2), 1, NONE) == (0.0, 0.0)


def test_a_ring_of_context_hides_behind_attention():
    ring = Layout(context=4, itemsize=2)
    assert layer_messages(GPT, NETWORK, ring, 2, LONG) == (0.0, 0.0)
    once = FAST.alpha + 2 * 2 * 512 * 1024 * 2 / 4 * FAST.beta
    assert layer_messages(GPT, NETWORK, ring, 2, NONE) == pytest.approx((3 * once, 6 * once))
    gathered = layer_messages(GPT, NETWORK, ring._replace(context_by="all_gather"), 2, LONG)
    nbytes = 2 * 2 * 512 * 1024 * 2
    each = collectives.all_gather(4, nbytes, *FAST)
    assert gathered == pytest.approx((each, 2 * each))


def test_heads_are_exchanged_by_all_to_all():
    """Ulysses: queries, keys, values and the result, each forward and backward."""
    layout = Layout(context=4, context_by="all_to_all", itemsize=2)
    each = 4 * 2 * 512 * 1024 * 2 // 4  # bytes of four tensors on a rank
    expected = collectives.all_to_all(4, each, *FAST)
    assert layer_messages(GPT, NETWORK, layout, 2, LONG) == pytest.approx((expected, expected))


def test_fewer_heads_of_keys_travel_less():
    few = GPT._replace(kv_heads=4)
    ring = Layout(context=4, itemsize=2)
    all_heads, fewer = (sum(layer_messages(model, NETWORK, ring, 64, NONE)) for model in (GPT, few))
    assert fewer == pytest.approx(all_heads / 4, rel=0.05)


def test_an_all_to_all_in_a_node_is_the_formulas():
    assert all_to_all(NETWORK, 8, 1 << 20) == pytest.approx(collectives.all_to_all(8, 1 << 20, *FAST))
    assert all_to_all(NETWORK, 1, 1 << 20) == 0
    assert all_to_all(Torus(8, SLOW), 8, 1 << 20) > 0


def test_tokens_cross_nodes_once():
    """A token of eight experts on at most two nodes crosses twice, not eight times."""
    many = GPT._replace(experts=64, active=8)
    layout = Layout(data=64, experts=64, itemsize=2)
    far, limited = (
        sum(layer_messages(many, NETWORK, layout._replace(expert_nodes=nodes), 8, NONE)) for nodes in (None, 2)
    )
    assert limited == pytest.approx(far / 4, rel=0.1)


def test_imbalance_lengthens_messages_and_dualpipe_hides_them():
    many = GPT._replace(experts=64, active=8)
    layout = Layout(data=64, experts=64, itemsize=2)
    even = sum(layer_messages(many, NETWORK, layout, 8, NONE))
    assert sum(layer_messages(many, NETWORK, layout._replace(imbalance=1.5), 8, NONE)) > 1.4 * even
    hidden = layer_messages(many, NETWORK, layout._replace(hide_experts=True), 8, LONG)
    assert sum(hidden) == pytest.approx(HELD * even)
