"""Lab `attention` answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% ring_attention: keys and values as one wide matrix, logarithms of sums
def ring_attention(q, k, v, positions, comm):
    p, rank = comm.size, comm.rank
    c, d = q.shape
    block = torch.cat([k, v], dim=1)
    log_total = torch.full((c,), -torch.inf, dtype=q.dtype)
    out = torch.zeros(c, d, dtype=q.dtype)
    here = rank
    for step in range(p):
        requests = []
        if step + 1 < p:
            coming = (here - 1) % p
            following = torch.empty(len(positions[coming]), 2 * d, dtype=q.dtype)
            requests.append(comm.isend(block, (rank + 1) % p))
            requests.append(comm.irecv(following, (rank - 1) % p))
        later = positions[here][None, :] > positions[rank][:, None]
        scores = q @ block[:, :d].T / d**0.5
        scores[later] = -torch.inf
        log_here = torch.logsumexp(scores, 1)
        both = torch.logaddexp(log_total, log_here)
        weights = torch.exp(scores - both[:, None])
        out = out * torch.exp(log_total - both)[:, None] + weights @ block[:, d:]
        log_total = both
        for request in requests:
            request.wait()
        if step + 1 < p:
            block, here = following, coming
    return out


def stripes(n, p):
    return [torch.tensor(list(range(n))[rank::p], dtype=torch.int64) for rank in range(p)]


# %% ring_attention: a class of what is kept, a row at a time
class Running:
    def __init__(self, q):
        self.q = q
        self.top = q.new_full((len(q),), -math.inf)
        self.total = q.new_zeros(len(q))
        self.out = torch.zeros_like(q)

    def see(self, k, v, visible):
        for row, q in enumerate(self.q):
            mine = visible[row]
            if not mine.any():
                continue
            scores = k[mine] @ q / math.sqrt(len(q))
            top = torch.maximum(self.top[row], scores.max())
            shrink, weights = torch.exp(self.top[row] - top), torch.exp(scores - top)
            self.total[row] = self.total[row] * shrink + weights.sum()
            self.out[row] = self.out[row] * shrink + weights @ v[mine]
            self.top[row] = top


def ring_attention(q, k, v, positions, comm):
    p, rank = comm.size, comm.rank
    state, kv = Running(q), torch.stack((k, v))
    for step in range(p):
        source = (rank - step) % p
        if step < p - 1:
            after = torch.empty(2, positions[source - 1].numel(), q.shape[1], dtype=q.dtype)
            sending, receiving = comm.isend(kv, (rank + 1) % p), comm.irecv(after, (rank - 1) % p)
        state.see(kv[0], kv[1], positions[rank][:, None] >= positions[source][None, :])
        if step < p - 1:
            sending.wait()
            receiving.wait()
            kv = after
    return state.out / state.total[:, None]


stripes = lambda n, p: [torch.arange(n)[torch.arange(n) % p == rank] for rank in range(p)]


# %% moe: a loop over experts, lists
def moe(x, gate, w, capacity, comm):
    odds = torch.softmax(x @ gate.T, dim=1)
    chosen = odds.argmax(dim=1).tolist() if len(x) else []
    queues = [[] for _ in range(comm.size)]
    dropped = 0
    for token, e in enumerate(chosen):
        if len(queues[e]) < capacity:
            queues[e].append(token)
        else:
            dropped += 1
    counts = [len(queue) for queue in queues]
    kept = [token for queue in queues for token in queue]
    coming = all_to_all(torch.tensor(counts).view(-1, 1), comm).view(-1).tolist()
    there = all_to_all(x[kept].contiguous(), comm, counts, coming)
    back = all_to_all(expert(there, w), comm, coming, counts)
    y = x.clone()
    for answer, token in zip(back, kept):
        y[token] = odds[token].max() * answer
    return y, dropped


# %% moe: sorted tokens, their number in the queue by a cumulative sum
def moe(x, gate, w, capacity, comm):
    p = comm.size
    odds = (x @ gate.T).softmax(dim=-1)
    probability, chosen = odds.max(dim=-1)
    one_hot = (chosen[:, None] == torch.arange(p)).long()
    number = (one_hot.cumsum(0) * one_hot).sum(1)
    fits = number <= capacity
    kept = torch.arange(len(x))[fits]
    kept = kept[torch.argsort(chosen[kept], stable=True)]
    counts = one_hot[kept].sum(0)
    coming = all_to_all(counts[:, None].contiguous(), comm).flatten()
    arrived = all_to_all(x[kept], comm, counts.tolist(), coming.tolist())
    answers = all_to_all(expert(arrived, w), comm, coming.tolist(), counts.tolist())
    scaled = answers * probability[kept][:, None]
    return x.index_copy(0, kept, scaled), int((~fits).sum())


# %% moe: the expert written out, where instead of a loop
def moe(x, gate, w, capacity, comm):
    logits = torch.einsum("nd,ed->ne", x, gate)
    e_to = torch.exp(logits - logits.amax(1, keepdim=True)) if len(x) else logits
    odds = e_to / e_to.sum(1, keepdim=True)
    best = odds.argmax(1)
    chosen = [torch.where(best == e)[0][:capacity] for e in range(comm.size)]
    sizes = [part.numel() for part in chosen]
    rows = torch.cat(chosen)
    to_come = [int(n) for n in all_to_all(torch.tensor([[n] for n in sizes]), comm)]
    mine = all_to_all(x.index_select(0, rows), comm, sizes, to_come)
    answers = all_to_all((mine @ w).clamp(min=0), comm, to_come, sizes)
    y = x.clone()
    y[rows] = odds[rows, best[rows]].unsqueeze(1) * answers
    return y, x.shape[0] - sum(sizes)


# %% attention: loops over rows
def attention(q, k, v, causal=True):
    if q.dim() > 2:
        return torch.stack([attention(*each, causal) for each in zip(q, k, v)])
    rows = []
    for i in range(len(q)):
        keys, values = (k[: i + 1], v[: i + 1]) if causal else (k, v)
        scores = torch.mv(keys, q[i]) / q.shape[1] ** 0.5
        rows.append(torch.softmax(scores, 0) @ values)
    return torch.stack(rows)


# %% attention: einsum, and a sum of exponentials
def attention(q, k, v, causal=True):
    scores = torch.einsum("...id,...jd->...ij", q, k) * q.size(-1) ** -0.5
    if causal:
        i = torch.arange(q.size(-2))
        scores = torch.where(i[:, None] >= i, scores, torch.tensor(float("-inf"), dtype=q.dtype))
    odds = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return torch.einsum("...ij,...jd->...id", odds, v) / odds.sum(-1, keepdim=True)


# %% attention: a mask that is added
def attention(q, k, v, causal=True):
    n, m = q.shape[-2], k.shape[-2]
    mask = torch.zeros(n, m, dtype=q.dtype)
    if causal:
        mask[torch.triu_indices(n, m, 1).unbind()] = -math.inf
    return torch.matmul(torch.softmax(torch.matmul(q / math.sqrt(q.shape[-1]), k.mT) + mask, dim=-1), v)


# %% online_softmax: names for each half
def absorb(top, total, out, scores, v):
    highest, _ = scores.max(dim=1, keepdim=True)
    now = torch.where(highest > top, highest, top)
    old = torch.exp(top - now)
    e = torch.exp(scores - now)
    return now, old * total + e.sum(dim=1)[:, None], old * out + torch.mm(e, v)


def flash(q, k, v, block):
    n = q.shape[0]
    rows = torch.arange(n).unsqueeze(1)
    state = (
        torch.full((n, 1), float("-inf"), dtype=q.dtype),
        torch.zeros((n, 1), dtype=q.dtype),
        torch.zeros((n, v.shape[1]), dtype=q.dtype),
    )
    for keys, values, places in zip(k.split(block), v.split(block), torch.arange(n).split(block)):
        scores = q @ keys.t() / q.shape[1] ** 0.5
        scores[places[None, :] > rows] = float("-inf")
        state = absorb(*state, scores, values)
    return state[2] / state[1]


# %% online_softmax: one token at a time, queries by block
def absorb(top, total, out, scores, v):
    for j in range(scores.shape[1]):
        score = scores[:, j : j + 1]
        larger = torch.maximum(top, score)
        shrink, weight = (top - larger).exp(), (score - larger).exp()
        top, total, out = larger, total * shrink + weight, out * shrink + weight * v[j]
    return top, total, out


def flash(q, k, v, block):
    parts = []
    for first in range(0, len(q), block):
        mine = q[first : first + block]
        top, total, out = mine.new_full((len(mine), 1), -math.inf), mine.new_zeros(len(mine), 1), torch.zeros_like(mine)
        for start in range(0, first + 1, block):
            scores = mine @ k[start : start + block].T / math.sqrt(q.shape[1])
            if start == first:
                scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
            top, total, out = absorb(top, total, out, scores, v[start : start + block])
        parts.append(out / total)
    return torch.cat(parts)


# %% online_softmax: everything as one wide matrix
def absorb(top, total, out, scores, v):
    new = torch.cat([top, scores], 1).amax(1, keepdim=True)
    factor, e = torch.exp(top - new), torch.exp(scores - new)
    kept = torch.cat([total, out], 1) * factor
    ones = torch.ones(len(v), 1, dtype=v.dtype)
    kept = kept + e @ torch.cat([ones, v], 1)
    return new, kept[:, :1], kept[:, 1:]


def flash(q, k, v, block):
    n, d = q.shape
    mine = q / math.sqrt(d)
    top, total, out = q.new_full((n, 1), -math.inf), q.new_zeros(n, 1), q.new_zeros(n, d)
    start = 0
    while start < n:
        end = min(n, start + block)
        seen = torch.arange(n)[:, None] >= torch.arange(start, end)[None]
        scores = torch.where(seen, mine @ k[start:end].T, -math.inf)
        top, total, out = absorb(top, total, out, scores, v[start:end])
        start = end
    return out / total


# %% heads: reshape and permute
def split(x, heads):
    *batch, n, h = x.shape
    return x.reshape(*batch, n, heads, h // heads).movedim(-2, -3)


def merge(x):
    *batch, heads, n, d = x.shape
    return x.movedim(-3, -2).reshape(*batch, n, heads * d)


def transformer_block(x, w, heads):
    h = x.shape[-1]
    everything = torch.matmul(norm(x), w["qkv"])
    q, k, v = everything[..., :h], everything[..., h : 2 * h], everything[..., 2 * h :]
    attended = merge(attention(split(q, heads), split(k, heads), split(v, heads), causal=True))
    y = x + torch.matmul(attended, w["out"])
    return y + torch.matmul(torch.matmul(norm(y), w["up"]).clamp(min=0), w["down"])


# %% heads: lists of slices
def split(x, heads):
    d = x.shape[-1] // heads
    return torch.stack([x[..., i * d : (i + 1) * d] for i in range(heads)], dim=-3)


def merge(x):
    return torch.cat([x[..., i, :, :] for i in range(x.shape[-3])], dim=-1)


def transformer_block(x, w, heads):
    before = norm(x)
    parts = torch.tensor_split(w["qkv"], 3, dim=1)
    q, k, v = [split(before @ part, heads) for part in parts]
    middle = (
        x
        + merge(torch.stack([attention(q[..., i, :, :], k[..., i, :, :], v[..., i, :, :]) for i in range(heads)], -3))
        @ w["out"]
    )
    hidden = norm(middle) @ w["up"]
    hidden[hidden < 0] = 0
    return middle + hidden @ w["down"]


# %% heads: a class for the halves, einsum
def split(x, heads):
    return x.view(x.shape[:-1] + (heads, x.shape[-1] // heads)).swapaxes(-2, -3)


def merge(x):
    return x.swapaxes(-2, -3).contiguous().view(x.shape[:-3] + (x.shape[-2], x.shape[-1] * x.shape[-3]))


class Halves:
    def __init__(self, w, heads):
        self.w, self.heads = w, heads

    def look(self, x):
        q, k, v = torch.einsum("...nh,hk->...nk", norm(x), self.w["qkv"]).split(x.shape[-1], -1)
        return merge(attention(*(split(part.contiguous(), self.heads) for part in (q, k, v)))) @ self.w["out"]

    def think(self, x):
        return torch.nn.functional.relu(norm(x) @ self.w["up"]) @ self.w["down"]


def transformer_block(x, w, heads):
    halves = Halves(w, heads)
    for half in (halves.look, halves.think):
        x = x + half(x)
    return x


# %% block_work: a loop over the products
def block_work(b, n, h, heads):
    weights = flops = 0
    for rows, columns in ((h, 3 * h), (h, h), (h, 4 * h), (4 * h, h)):
        weights += rows * columns
        flops += 2 * b * n * rows * columns
    d = h // heads
    for _ in range(b * heads):
        flops += 2 * n * d * n + 2 * n * n * d
    kept = {"x": h, "norm": h, "qkv": 3 * h, "odds": heads * n, "merged": h, "x2": h, "norm2": h, "relu": 4 * h}
    return weights, flops, b * n * sum(kept.values())


# %% block_work: floats by the formulas of the papers
def block_work(b, n, h, heads):
    flops = 24 * b * n * h**2 * (1 + n / (6 * h))
    return 12.0 * h * h, round(flops), b * n * h * (12 + heads * n / h)


# %% block_work: names, a list
def block_work(b: int, n: int, h: int, heads: int):
    tokens, pairs = b * n, b * n * n
    qkv, out, up, down = 3 * h * h, h * h, 4 * h * h, 4 * h * h
    total = sum([qkv, out, up, down])
    scores = 2 * pairs * h
    means = 2 * pairs * h
    return [total, 2 * tokens * total + scores + means, 12 * tokens * h + pairs * heads]


# %% ring_attention: as before, with absorb
def ring_attention(q, k, v, positions, comm):
    p, rank, d = comm.size, comm.rank, q.shape[1]
    right, left = (rank + 1) % p, (rank - 1) % p
    state = q.new_full((len(q), 1), -math.inf), q.new_zeros(len(q), 1), q.new_zeros(q.shape)
    block = torch.stack([k, v])
    for step in range(p):
        source = (rank - step) % p
        last = step == p - 1
        if not last:
            incoming = torch.empty(2, len(positions[(source - 1) % p]), d, dtype=q.dtype)
            receiving, sending = comm.irecv(incoming, left), comm.isend(block, right)
        scores = q @ block[0].T * d**-0.5
        scores[positions[rank][:, None] < positions[source]] = -math.inf
        state = absorb(*state, scores, block[1])
        if not last:
            receiving.wait()
            sending.wait()
            block = incoming
    return state[2] / state[1]


def stripes(n, p):
    dealt = [[] for _ in range(p)]
    for token in range(n):
        dealt[token % p].append(token)
    return [torch.tensor(tokens, dtype=torch.int64) for tokens in dealt]


# %% route: sorted lists
def route(odds, k, capacity):
    n, e = odds.shape
    best = [sorted(range(e), key=lambda i: -row[i])[:k] for row in odds.tolist()]
    taken = {expert: 0 for expert in range(e)}
    weights = torch.zeros(n, k, dtype=odds.dtype)
    for choice in range(k):
        for token in range(n):
            expert = best[token][choice]
            if taken[expert] < capacity:
                taken[expert] += 1
                weights[token, choice] = odds[token, expert] / odds[token, best[token]].sum()
    return torch.tensor(best), weights


def balance(odds):
    n, e = odds.shape
    total = 0.0
    for expert in range(e):
        first = sum(1 for row in odds if int(row.argmax()) == expert)
        total += first / n * odds[:, expert].mean().item()
    return e * total


# %% route: one-hot and cumulative sums
def route(odds, k, capacity):
    n, e = odds.shape
    experts = odds.argsort(dim=1, descending=True)[:, :k]
    mine = odds.gather(1, experts)
    asked = torch.nn.functional.one_hot(experts.T.reshape(-1), e)
    number = (asked.cumsum(0) * asked).sum(1).view(k, n).T
    return experts, torch.where(number <= capacity, mine / mine.sum(1, keepdim=True), 0.0)


def balance(odds):
    e = odds.shape[1]
    share = torch.nn.functional.one_hot(odds.argmax(1), e).to(odds.dtype).mean(0)
    return e * (share * odds.mean(0)).sum()


# %% route: expert after expert
def route(odds, k, capacity):
    chosen, experts = torch.topk(odds, k)
    weights = chosen / chosen.sum(dim=1, keepdim=True)
    for expert in range(odds.shape[1]):
        places = (experts.T == expert).nonzero().tolist()
        for choice, token in places[capacity:]:
            weights[token, choice] = 0.0
    return experts, weights


def balance(odds):
    counts = torch.zeros(odds.shape[1], dtype=torch.float64)
    for best in odds.max(1).indices:
        counts[best] += 1
    return float(odds.shape[1] * torch.dot(counts / counts.sum(), odds.double().mean(0)))


# %% moe: sorting by expert, index_copy
def moe(x: Tensor, gate: Tensor, w: Tensor, capacity: int, comm) -> tuple[Tensor, int]:
    p, n = comm.size, x.shape[0]
    probability, chosen = (x @ gate.mT).softmax(-1).max(-1)
    order = chosen.argsort(stable=True)
    runs = chosen[order].bincount(minlength=p)
    place = torch.arange(n) - (runs.cumsum(0) - runs)[chosen[order]]
    kept = order[place < capacity]
    counts = runs.clamp(max=capacity)
    there = all_to_all(counts.unsqueeze(1), comm).squeeze(1)
    tokens = all_to_all(x.index_select(0, kept), comm, counts.tolist(), there.tolist())
    back = all_to_all(expert(tokens, w), comm, there.tolist(), counts.tolist())
    y = x.index_copy(0, kept, back * probability[kept].unsqueeze(1))
    return y, n - len(kept)


# %% attention: exponentials of scores minus their logsumexp
def attention(q, k, v, causal=True):
    s = torch.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    if causal:
        seen = torch.ones(s.shape[-2:]).tril().bool()
        s = torch.where(seen, s, torch.tensor(-math.inf, dtype=s.dtype))
    return (s - s.logsumexp(-1, keepdim=True)).exp() @ v
