"""Lab `attention` answered by others."""

LIBRARY = {
    "online_softmax": """
from hpcdl.comm import simulate
from hpcdl.parallel.sequence import ring

def absorb(top, total, out, scores, v):
    sums = ring._Sums(out[None, None])
    sums.largest, sums.weights, sums.values = top[None, None], total[None, None], out[None, None]
    sums.add(scores[None, None], v[None, None])
    return sums.largest[0, 0], sums.weights[0, 0], sums.values[0, 0]

def flash(q, k, v, block):
    q, k, v = (x[None, None] for x in (q, k, v))
    return simulate(lambda comm: ring.ring_attention(q, k, v, comm, causal=True), 1).results[0][0, 0]
""",
    "block_work": """
import torch
from torch.utils.flop_counter import FlopCounterMode
from hpcdl.memory import saved
from hpcdl.nn.transformer import CausalBlock

def block_work(b, n, h, heads):
    block = CausalBlock(h, heads)
    with FlopCounterMode(display=False) as flops, saved(*block.parameters()) as kept:
        block(torch.zeros(b, n, h))
    return 12 * h * h, flops.get_total_flops(), kept.bytes // 4
""",
    "ring_attention": """
from hpcdl.parallel.sequence import positions as librarys_positions
from hpcdl.parallel.sequence.ring import ring_attention as librarys

def ring_attention(q, k, v, positions, comm):
    return librarys(q[None, None], k[None, None], v[None, None], comm, causal=True)[0, 0]

def stripes(n, p):
    return [librarys_positions("striped", n, p, rank) for rank in range(p)]
""",
    "route": """
import torch
from hpcdl.comm import simulate
from hpcdl.parallel import experts as gated

def route(odds, k, capacity):
    weights, chosen = odds.topk(k)
    kept = gated._first(chosen, odds.shape[1], capacity)
    return chosen, weights / weights.sum(1, keepdim=True) * kept

def balance(odds):
    e = odds.shape[1]
    parts = [torch.nn.Identity() for _ in range(e)]
    make = lambda comm: gated.Experts(torch.nn.Linear(1, e), parts, comm)
    return float(simulate(lambda comm: make(comm)._balance(odds, odds.argmax(1)), 1).results[0])
""",
    "moe": """
from hpcdl.parallel.experts import Experts

def moe(x, gate, w, capacity, comm):
    y, routing = Experts(gate, [w], comm, k=1, room=capacity)(x)
    return y, int(routing.dropped)
""",
}
NOT_IN_LIBRARY = {
    "attention": "its attention is that of ranks: see ring_attention, and flash",
    "heads": "its block has biases and a GELU, and its heads are views inside a module",
}

FRAMEWORKS = {
    "attention": """
import torch

def attention(q, k, v, causal=True):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
""",
    "online_softmax": """
import torch

def absorb(top, total, out, scores, v):
    alone = torch.nn.functional.scaled_dot_product_attention(scores, torch.eye(scores.shape[1]).to(v), v, scale=1.0)
    new_top = torch.maximum(top, scores.amax(1, keepdim=True))
    weight, shrink = (scores - new_top).exp().sum(1, keepdim=True), (top - new_top).exp()
    return new_top, total * shrink + weight, out * shrink + weight * alone

def flash(q, k, v, block):
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
""",
    "block_work": """
import torch
from torch.utils.flop_counter import FlopCounterMode

def block_work(b, n, h, heads):
    block = torch.nn.TransformerEncoderLayer(h, heads, 4 * h, 0.0, bias=False, batch_first=True, norm_first=True)
    with FlopCounterMode(display=False) as flops:
        block(torch.zeros(b, n, h))
    return 12 * h * h, flops.get_total_flops(), 12 * b * n * h + b * heads * n * n
""",
    "ring_attention": """
import torch

def ring_attention(q, k, v, positions, comm):
    everyone = [torch.empty(2, len(places), q.shape[1], dtype=q.dtype) for places in positions]
    everyone[comm.rank].copy_(torch.stack([k, v]))
    for rank, block in enumerate(everyone):
        comm.broadcast(block, rank)
    keys, values = torch.cat(everyone, 1)
    visible = positions[comm.rank][:, None] >= torch.cat(positions)
    q, keys, values, visible = q[None], keys[None], values[None], visible[None]
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=visible)[0]

def stripes(n, p):
    sampler = torch.utils.data.DistributedSampler
    return [torch.tensor(list(sampler(range(n), p, rank, shuffle=False))) for rank in range(p)]
""",
}
NOT_IN_FRAMEWORKS = {
    "heads": "split and merge are a view each; torch's layer, which is forbidden, is among the verdicts",
    "route": "torch has no experts",
    "moe": "torch has no experts",
}
