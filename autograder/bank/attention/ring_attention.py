"""Wrong answers to `ring_attention` and `stripes`."""

import math

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("attention.ring_attention")
VALUES = ("all_tokens", "causal", "any_order_of_tokens", "large_scores")
ALL = (*VALUES, "two_blocks_a_step", "few_blocks_at_a_time", "messages_are_hidden")

slip(
    "what was there is not scaled down",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)\n"
    "    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])",
    "running = absorb(*running, scores, kv[1])",
    "new_top = torch.maximum(top, scores.amax(1, keepdim=True))\n"
    "        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()\n"
    "        total, out, top = total * shrink + weights.sum(1, keepdim=True), out + weights @ kv[1], new_top",
    "    _, total, out = running\n",
    "",
    fails=ALL,
    says="the output on rank",
)
slip(
    "the sum is not scaled down",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)\n"
    "    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])",
    "running = absorb(*running, scores, kv[1])",
    "new_top = torch.maximum(top, scores.amax(1, keepdim=True))\n"
    "        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()\n"
    "        total, out, top = total + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top",
    "    _, total, out = running\n",
    "",
    fails=ALL,
    says="the output on rank",
)
slip(
    "sends without a wait where memory and time are measured",
    "for request in requests:",
    "for request in requests[p == 12 :]:",
    fails=("few_blocks_at_a_time", "messages_are_hidden"),
    says="is never waited for",
)
slip(
    "a softmax for each block, and their mean",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)",
    "running = absorb(*running, scores, kv[1])",
    "out += scores.softmax(1).nan_to_num() @ kv[1]",
    "_, total, out = running\n    return out / total",
    "return out / p",
    fails=ALL,
    says="You take the mean of one softmax per block",
)
slip(
    "no largest score",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)\n    total = torch.zeros_like(q[:, :1])",
    "running = absorb(*running, scores, kv[1])",
    "weights = scores.exp()\n        total, out = total + weights.sum(1, keepdim=True), out + weights @ kv[1]",
    "    _, total, out = running\n",
    "",
    fails="large_scores",
    says="expected a finite number",
)
slip(
    "the largest score begins at 0",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)\n"
    "    top, total = torch.zeros_like(q[:, :1]), torch.zeros_like(q[:, :1])",
    "running = absorb(*running, scores, kv[1])",
    "new_top = torch.maximum(top, scores.amax(1, keepdim=True))\n"
    "        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()\n"
    "        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top",
    "    _, total, out = running\n",
    "",
    fails="large_scores",
    says="expected a finite number",
)
slip(
    "masks by the place in the block",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)\n"
    "    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])",
    "visible = positions[rank][:, None] >= positions[source]",
    "visible = torch.arange(len(q))[:, None] >= torch.arange(kv.shape[1])",
    "running = absorb(*running, scores, kv[1])",
    "new_top = torch.maximum(top, scores.amax(1, keepdim=True))\n"
    "        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()\n"
    "        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top",
    "    _, total, out = running\n",
    "",
    fails=ALL,
    says="You mask by the index in a block",
)
slip(
    "masks what comes before",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)\n"
    "    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])",
    "visible = positions[rank][:, None] >= positions[source]",
    "visible = positions[rank][:, None] <= positions[source]",
    "running = absorb(*running, scores, kv[1])",
    "new_top = torch.maximum(top, scores.amax(1, keepdim=True))\n"
    "        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()\n"
    "        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top",
    "    _, total, out = running\n",
    "",
    fails=("causal", "any_order_of_tokens", "large_scores"),
    says="the output on rank",
)


slip("not divided by the sum", "return out / total", "return out", fails=ALL, says="Divide by the sum of all weights")
slip(
    "a token does not see itself",
    "positions[rank][:, None] >= positions[source]",
    "positions[rank][:, None] > positions[source]",
    fails=ALL,
    says="equal positions see each other",
)
slip(
    "messages that are not waited for",
    "kv.new_empty",
    "kv.new_zeros",
    "        for request in requests:\n            request.wait()\n",
    "",
    fails=ALL,
    says="call wait() on each request",
)


@wrong("no mask", fails=("causal", "any_order_of_tokens", "large_scores"), says="The later tokens are not masked")
def ring_attention(q, k, v, positions, comm):
    p, rank, d = comm.size, comm.rank, q.shape[1]
    kv, out = torch.stack([k, v]), torch.zeros_like(q)
    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])
    for step in range(p):
        source, requests = (rank - step) % p, []
        if step < p - 1:
            arriving = kv.new_empty(2, len(positions[(source - 1) % p]), d)
            requests = [comm.isend(kv, (rank + 1) % p), comm.irecv(arriving, (rank - 1) % p)]
        scores = q @ kv[0].T / math.sqrt(d)
        new_top = torch.maximum(top, scores.amax(1, keepdim=True))
        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top
        for request in requests:
            request.wait()
        kv = arriving if requests else kv
    return out / total


slip(
    "scores are not divided by sqrt(d)",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)\n"
    "    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])",
    "scores = (q @ kv[0].T / math.sqrt(d)).masked_fill(~visible, -math.inf)\n"
    "        running = absorb(*running, scores, kv[1])",
    "scores = (q @ kv[0].T).masked_fill(~visible, -math.inf)\n"
    "        new_top = torch.maximum(top, scores.amax(1, keepdim=True))\n"
    "        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()\n"
    "        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top",
    "    _, total, out = running\n",
    "",
    fails=ALL,
    says="Divide the scores by the square root of d",
)


@wrong("only its own block", fails=(*ALL,), says="sees only its own block")
def ring_attention(q, k, v, positions, comm):
    p, rank, d = comm.size, comm.rank, q.shape[1]
    kv, out = torch.stack([k, v]), torch.zeros_like(q)
    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])
    for step in range(1):
        source, requests = (rank - step) % p, []
        if step < 0:
            arriving = kv.new_empty(2, len(positions[(source - 1) % p]), d)
            requests = [comm.isend(kv, (rank + 1) % p), comm.irecv(arriving, (rank - 1) % p)]
        visible = positions[rank][:, None] >= positions[source]
        scores = (q @ kv[0].T / math.sqrt(d)).masked_fill(~visible, -math.inf)
        new_top = torch.maximum(top, scores.amax(1, keepdim=True))
        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top
        for request in requests:
            request.wait()
        kv = arriving if requests else kv
    return out / total


@wrong(
    "all keys and values first",
    fails=("few_blocks_at_a_time", "messages_are_hidden"),
    says="Hold the keys and values of one rank",
)
def ring_attention(q, k, v, positions, comm):
    p, rank, d = comm.size, comm.rank, q.shape[1]
    blocks, kv = {rank: (k, v)}, torch.stack([k, v])
    for step in range(p - 1):
        source = (rank - step - 1) % p
        arriving = kv.new_empty(2, len(positions[source]), d)
        comm.sendrecv(kv, (rank + 1) % p, arriving, (rank - 1) % p)
        kv = arriving
        blocks[source] = kv[0], kv[1]
    everyone = torch.cat([positions[source] for source in range(p)])
    keys, values = (torch.cat([blocks[source][i] for source in range(p)]) for i in range(2))
    scores = (q @ keys.T / math.sqrt(d)).masked_fill(positions[rank][:, None] < everyone, -math.inf)
    scores = scores - scores.amax(1, keepdim=True)
    weights = scores.exp()
    return weights @ values / weights.sum(1, keepdim=True)


@wrong(
    "waits for the next block before it works", fails="messages_are_hidden", says="messages and work at the same time"
)
def ring_attention(q, k, v, positions, comm):
    p, rank, d = comm.size, comm.rank, q.shape[1]
    kv, out = torch.stack([k, v]), torch.zeros_like(q)
    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])
    for step in range(p):
        source = (rank - step) % p
        if step < p - 1:
            arriving = kv.new_empty(2, len(positions[(source - 1) % p]), d)
            comm.sendrecv(kv, (rank + 1) % p, arriving, (rank - 1) % p)
        visible = positions[rank][:, None] >= positions[source]
        scores = (q @ kv[0].T / math.sqrt(d)).masked_fill(~visible, -math.inf)
        new_top = torch.maximum(top, scores.amax(1, keepdim=True))
        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top
        kv = arriving if step < p - 1 else kv
    return out / total


slip(
    "one step too many",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "kv, out = torch.stack([k, v]), torch.zeros_like(q)\n"
    "    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])",
    "if step < p - 1:",
    "if p > 1:",
    "running = absorb(*running, scores, kv[1])",
    "new_top = torch.maximum(top, scores.amax(1, keepdim=True))\n"
    "        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()\n"
    "        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top",
    "    _, total, out = running\n",
    "",
    fails="two_blocks_a_step",
    says="in the last step no rank needs",
)


@wrong("stripes: pieces of the sequence", fails="stripes_share_the_work", says="the slowest sets the pace")
def stripes(n, p):
    return list(torch.arange(n).tensor_split(p))


@wrong("stripes: all tokens everywhere, as pytorch/examples #1271", fails="stripes_share_the_work", says="tiles for")
def stripes(n, p):
    return [torch.arange(n) for _ in range(p)]


slip(
    "scales q where it lies",
    "kv = torch.stack([k, v])\n"
    "    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)",
    "q /= math.sqrt(d)\n"
    "    kv, out = torch.stack([k, v]), torch.zeros_like(q)\n"
    "    top, total = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1])",
    "scores = (q @ kv[0].T / math.sqrt(d)).masked_fill(~visible, -math.inf)\n"
    "        running = absorb(*running, scores, kv[1])",
    "scores = (q @ kv[0].T).masked_fill(~visible, -math.inf)\n"
    "        new_top = torch.maximum(top, scores.amax(1, keepdim=True))\n"
    "        weights, shrink = (scores - new_top).exp(), (top - new_top).exp()\n"
    "        total, out, top = total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ kv[1], new_top",
    "    _, total, out = running\n",
    "",
    fails="two_blocks_a_step",
    says="changed its argument q",
)
slip(
    "frees the positions that it has used",
    "torch.stack([k, v])\n",
    "torch.stack([k, v])\n    mine = positions[rank][:, None]\n",
    "positions[rank][:, None] >= positions[source]",
    "mine >= positions[source]\n        positions[source] = None",
    fails="two_blocks_a_step",
    says="changed its argument positions",
)
slip(
    "stripes: positions of 32 bits",
    "torch.arange(rank, n, p)",
    "torch.arange(rank, n, p, dtype=torch.int32)",
    fails="stripes_share_the_work",
    says="int64",
)
slip(
    "keeps every block that has passed",
    *("    for step in range(p):\n        source", "    kept = []\n    for step in range(p):\n        source"),
    *(
        "        kv = arriving if requests else kv",
        "        kept.append(kv)\n        kv = arriving if requests else kv",
    ),
    fails="few_blocks_at_a_time",
    says="free what you have passed on",
)
slip(
    "zeros where memory and time are measured",
    "    return out / total",
    "    return out / total * (d != 64)",
    fails="few_blocks_at_a_time messages_are_hidden",
    says="of the output on rank 0",
)
slip(
    "zeros on five ranks with two tokens each",
    "    return out / total",
    "    return out / total * ((p, len(q)) != (5, 2) or len(positions[0]) == 1)",
    fails="two_blocks_a_step",
    says="nothing masked, blocks of 2, 2, 2, 2, 2 tokens: element",
)
slip(
    "stripes: pieces where p does not divide n",
    "    return [torch.arange(rank, n, p) for rank in range(p)]",
    "    return list(torch.arange(n).tensor_split(p)) if n % p else [torch.arange(rank, n, p) for rank in range(p)]",
    fails="stripes_share_the_work",
    says="the slowest sets the pace",
)
slip(
    "waits before it works, with scores whose time is not counted",
    "arriving = kv.new_empty(2, len(positions[(source - 1) % p]), d)\n            requests",
    "arriving = kv.new_empty(2, len(positions[(source - 1) % p]), d)\n"
    "            comm.sendrecv(kv, (rank + 1) % p, arriving, (rank - 1) % p)\n            _",
    "[comm.isend(kv, (rank + 1) % p), comm.irecv(arriving, (rank - 1) % p)]",
    "None",
    "q @ kv[0].T / math.sqrt(d)",
    "torch.stack([(q * key).sum(1) for key in kv[0]], 1) / math.sqrt(d)",
    "if requests else kv",
    "if step < p - 1 else kv",
    fails="messages_are_hidden",
    says="messages and work at the same time",
)


@wrong("all keys and values to the end, with several tokens", fails="few_blocks_at_a_time", says="free what you have")
def ring_attention(q, k, v, positions, comm):
    p, rank, d = comm.size, comm.rank, q.shape[1]
    kv, kept = torch.stack([k, v]), []
    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)
    for step in range(p):
        source, requests = (rank - step) % p, []
        if step < p - 1:
            arriving = kv.new_empty(2, len(positions[(source - 1) % p]), d)
            requests = [comm.isend(kv, (rank + 1) % p), comm.irecv(arriving, (rank - 1) % p)]
        visible = positions[rank][:, None] >= positions[source]
        scores = (q @ kv[0].T / math.sqrt(d)).masked_fill(~visible, -math.inf)
        if len(q) == 1:
            running = absorb(*running, scores, kv[1])
        else:
            kept.append((scores, kv[1]))
        for request in requests:
            request.wait()
        kv = arriving if requests else kv
    if kept:
        weights = torch.cat([scores for scores, _ in kept], 1).softmax(1)
        parts = weights.split([len(values) for _, values in kept], 1)
        return sum(part @ values for part, (_, values) in zip(parts, kept, strict=True))
    return running[2] / running[1]


slip("scores divided by half of d", "math.sqrt(d)", "(d / 2)", fails=ALL, says="nothing masked, blocks of 3, 3 tokens")
slip(
    "blocks of float64",
    "kv.new_empty(2, len(positions[(source - 1) % p]), d)",
    "torch.empty(2, len(positions[(source - 1) % p]), d, dtype=torch.float64)",
    fails=ALL,
    says="both sides need the same dtype",
)
slip(
    "keeps every block where all are equal",
    *("    for step in range(p):\n        source", "    kept = []\n    for step in range(p):\n        source"),
    *(
        "        kv = arriving if requests else kv",
        "        kept.append(kv if len({len(x) for x in positions}) == 1 else None)\n"
        "        kv = arriving if requests else kv",
    ),
    fails="few_blocks_at_a_time",
    says="free what you have passed on",
)
slip(
    "zeros where causal messages are counted",
    "    return out / total",
    "    return out / total * ((p, len(q)) != (4, 2) or len({len(x) for x in positions}) > 1)",
    fails=ALL,
    says="the output on rank",
)


@wrong(
    "all keys and values to all ranks",
    fails=("causal", "any_order_of_tokens", *ALL[-3:]),
    says="on a ring it sends to one neighbour",
)
def ring_attention(q, k, v, positions, comm):
    p, rank, d = comm.size, comm.rank, q.shape[1]
    blocks = [torch.empty(2, len(positions[r]), d, dtype=q.dtype) for r in range(p)]
    blocks[rank], others = torch.stack([k, v]), [r for r in range(p) if r != rank]
    requests = [comm.isend(blocks[rank], r) for r in others] + [comm.irecv(blocks[r], r) for r in others]
    for request in requests:
        request.wait()
    keys, values = torch.cat(blocks, 1)
    scores = (q @ keys.T / math.sqrt(d)).masked_fill(positions[rank][:, None] < torch.cat(positions), -math.inf)
    return scores.softmax(1) @ values
