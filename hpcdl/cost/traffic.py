"""The exposed seconds of one layer's messages per microbatch: tensor, context, experts, shards.

An all-gather or a reduce-scatter is half of an all-reduce of as many bytes. Sources: Shoeybi et al. 2019 (tensor); Liu
et al. 2023 (ring); Jacobs et al. 2023 (Ulysses); Lepikhin et al. 2021, "GShard" (experts); Rajbhandari et al. 2020 and
Zhao et al. 2023 (shards).
"""

from hpcdl.cost.blocks import Pass
from hpcdl.cost.layout import Layout
from hpcdl.cost.topology import Network, Nodes
from hpcdl.cost.work import Transformer

HELD = 0.2  # of the processors, occupied by a collective's kernels: NCCL's 24 channels hold 24 of an A100's 108
Both = tuple[float, float]  # seconds of a forward and of a backward pass


def layer_messages(model: Transformer, network: Network, layout: Layout, samples: int, computed: Pass) -> Both:
    """Return the seconds that one layer's messages add to its forward and backward pass, which compute for `computed`
    seconds."""
    parts = [
        _tensor(model, network, layout, samples),
        _context(model, network, layout, samples, computed),
        _experts(model, network, layout, samples, computed),
    ]
    forward, backward = (sum(part[way] for part in parts) for way in (0, 1))
    again = layout.recomputed * (layout.recompute == "full")
    backward += again * forward
    shards = _shards(model, network, layout, computed, (forward, backward))
    return forward + shards[0], backward + shards[1]


def gather(network: Network, ranks: int, groups: int, nbytes: float) -> float:
    """Return the seconds to gather `nbytes` from this many ranks, or to reduce-scatter them, with `groups` in
    parallel."""
    return network.all_reduce(ranks, groups)(int(nbytes)) / 2 if ranks > 1 else 0.0


def all_to_all(network: Network, ranks: int, nbytes: float, once: float = 1.0) -> float:
    """Return the seconds for each of these ranks to send `nbytes` in total, an equal part to each of the others.

    Bytes for other nodes share the node's link, and only the share `once` of them crosses it; within a node all bytes
    are sent. Other networks treat it as one message.
    """
    if ranks == 1:
        return 0.0
    if not isinstance(network, Nodes):
        return network.message(int(nbytes * (ranks - 1) / ranks))
    near = min(ranks, network.per_node)
    within = (near - 1) * network.within.alpha + nbytes * (near - 1) / ranks * network.within.beta
    far = ranks - near
    between = far * network.between.alpha / near + near * once * nbytes * far / ranks * network.between.beta
    return max(within, between if far else 0.0)


def neighbour(network: Network, ranks: int, groups: int, nbytes: float) -> float:
    """Return the seconds of a message around a ring of this many ranks, with `groups` rings in parallel."""
    if isinstance(network, Nodes) and ranks * groups <= network.per_node:
        return network.within.alpha + nbytes * network.within.beta
    return network.message(int(nbytes * groups), groups)


def _tensor(model, network, layout, samples) -> Both:
    """Count two all-reduces of an activation each way; with sequence parallelism a reduce-scatter and a gather each."""
    if layout.tensor == 1:
        return 0.0, 0.0
    each = 2 * network.all_reduce(layout.tensor)(activation(model, layout, samples))
    return each, each


def activation(model: Transformer, layout: Layout, samples: int) -> int:
    """Return the bytes of one layer's output for a microbatch, on the ranks that share its part of the sequence."""
    return samples * model.sequence * model.hidden * layout.itemsize // layout.context


def _context(model, network, layout, samples, computed) -> Both:
    """Count keys and values passed around a ring while attention is computed, or gathered; their gradients return.

    By all-to-all, each rank has all tokens of some heads: queries, keys, values and the result are exchanged.
    """
    c, t = layout.context, layout.tensor
    if c == 1:
        return 0.0, 0.0
    nbytes = 2 * samples * model.sequence * model.keys * layout.itemsize / t
    if layout.context_by == "all_gather":
        once = gather(network, c, t, nbytes)
        return once, 2 * once
    if layout.context_by == "all_to_all":
        four = 2 * samples * model.sequence * (model.hidden + model.keys) * layout.itemsize / t / c
        once = all_to_all(network, c, four)
        return once, once
    once, each = neighbour(network, c, t, nbytes / c), computed.attention / c
    return (c - 1) * max(0.0, once - each), (c - 1) * max(0.0, 2 * once - 2.5 * each)


def _experts(model, network, layout, samples, computed) -> Both:
    """Count tokens sent to their experts and back, forward and backward; the fullest expert sets the pace."""
    if layout.experts == 1 or model.experts == 1:
        return 0.0, 0.0
    nbytes = activation(model, layout, samples) * model.active * layout.imbalance / layout.tensor
    once = min(1.0, (layout.expert_nodes or model.active) / model.active)
    each = 2 * all_to_all(network, layout.experts, nbytes, once)
    if layout.hide_experts:
        return _behind(each, computed.forward), _behind(each, computed.backward)
    return each, each


def _shards(model, network, layout, computed, messages) -> Both:
    """Count the gathers of a layer's weights for each pass and the scatter of its gradients, while the previous layer
    is computed.

    Hidden messages are not free: the collective's kernels occupy `HELD` of the processors. Without `prefetch` the
    gather of a backward pass waits for the previous scatter, and is exposed.
    """
    if layout.zero < 3 or layout.replicas == 1:
        return 0.0, 0.0
    nbytes = layer_weights(model, layout) * layout.itemsize
    each = gather(network, layout.shards or layout.replicas, layout.tensor, nbytes)
    forward, backward = (a + b for a, b in zip((computed.forward, computed.backward), messages, strict=True))
    behind = 2 * each if layout.prefetch else each
    return _behind(each, forward), _behind(behind, backward) + 2 * each - behind


def _behind(sent: float, computed: float) -> float:
    """Return what messages add to the computation that hides them."""
    return max(0.0, sent - computed) + HELD * min(sent, computed)


def layer_weights(model: Transformer, layout: Layout) -> float:
    """Return the weights of one layer on each rank of a tensor-parallel group, with experts divided."""
    return model.layer_weights(max(1, model.experts // layout.experts)) / layout.tensor
