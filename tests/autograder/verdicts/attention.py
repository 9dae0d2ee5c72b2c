"""Answers to exercises of lab `attention` whose verdict was wrong once: see `test_verdicts`."""


# %% ring_attention: alt two messages logsumexp -> full points
def ring_attention(q, k, v, positions, comm):  # k and v in two messages; merged by logsumexp
    p, rank, d = comm.size, comm.rank, q.shape[1]
    outs, lses = [], []
    for s in range(p):
        src = (rank - s) % p
        rs = []
        if s < p - 1:
            n = len(positions[(src - 1) % p])
            k2, v2 = k.new_empty(n, d), v.new_empty(n, d)
            rs = [
                comm.irecv(k2, (rank - 1) % p, tag=1),
                comm.irecv(v2, (rank - 1) % p, tag=2),
                comm.isend(k.contiguous(), (rank + 1) % p, tag=1),
                comm.isend(v.contiguous(), (rank + 1) % p, tag=2),
            ]
        sc = q @ k.T * d**-0.5
        sc = torch.where(positions[rank][:, None] < positions[src], torch.tensor(-math.inf, dtype=q.dtype), sc)
        l = sc.logsumexp(1, keepdim=True)
        o = torch.where(l.isinf(), torch.zeros_like(l), (sc - torch.where(l.isinf(), torch.zeros_like(l), l)).exp() @ v)
        outs.append(o)
        lses.append(l)
        for r in rs:
            r.wait()
        if s < p - 1:
            k, v = k2, v2
    w = torch.cat(lses, 1).softmax(1)
    return sum(w[:, i : i + 1] * o for i, o in enumerate(outs))


# %% moe: wrong inplace x -> no_more_than_the_tokens
def moe(x, gate, w, capacity, comm):
    odds = (x @ gate.T).softmax(1)
    probability, chosen = odds.max(1)
    parts = [(chosen == e).nonzero()[:, 0][:capacity] for e in range(comm.size)]
    kept = torch.cat(parts)
    counts = [len(part) for part in parts]
    coming = all_to_all(torch.tensor(counts)[:, None], comm)[:, 0].tolist()
    back = all_to_all(expert(all_to_all(x[kept], comm, counts, coming), w), comm, coming, counts)
    x[kept] = probability[kept, None] * back
    return x, len(x) - len(kept)


# %% moe: wrong all gather -> every_token_to_its_expert
def moe(x, gate, w, capacity, comm):  # all experts' weights travel instead of the tokens
    ws = w.new_zeros(comm.size, *w.shape)
    ws[comm.rank] = w
    comm.all_reduce(ws)
    odds = (x @ gate.T).softmax(1)
    probability, chosen = odds.max(1)
    y = x.clone()
    kept = 0
    for e in range(comm.size):
        ix = (chosen == e).nonzero()[:, 0][:capacity]
        y[ix] = probability[ix, None] * expert(x[ix], ws[e])
        kept += len(ix)
    return y, len(x) - kept


# %% moe: alt no counts -> full points
def moe(
    x, gate, w, capacity, comm
):  # out_counts left to the library: "Without `out_counts` the ranks tell each other first" (help(all_to_all)); sends the rank's number with ... needs counts back
    odds = (x @ gate.T).softmax(1)
    probability, chosen = odds.max(1)
    parts = [(chosen == e).nonzero()[:, 0][:capacity] for e in range(comm.size)]
    kept = torch.cat(parts)
    counts = [len(part) for part in parts]
    coming = all_to_all(torch.tensor(counts)[:, None], comm)[:, 0].tolist()
    there = all_to_all(x[kept], comm, counts)
    back = all_to_all(expert(there, w), comm, coming)
    y = x.clone()
    y[kept] = probability[kept, None] * back
    return y, len(x) - len(kept)


# %% heads: wrong torch layer -> one_head
def transformer_block(x, w, heads):  # torch's own layer, with these weights
    h = x.shape[-1]
    layer = torch.nn.TransformerEncoderLayer(
        h, heads, 4 * h, 0.0, batch_first=True, norm_first=True, bias=False
    ).double()
    attention = layer.self_attn
    places = (attention.in_proj_weight, attention.out_proj.weight, layer.linear1.weight, layer.linear2.weight)
    for place, name in zip(places, ("qkv", "out", "up", "down")):
        place.data.copy_(w[name].T)
    n = x.shape[-2]
    return layer(x, src_mask=torch.ones(n, n, dtype=torch.bool).triu(1)).detach()
