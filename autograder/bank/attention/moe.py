"""Wrong answers to `moe`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("attention.moe")
ALL = ("every_token_to_its_expert", "full_experts", "a_rank_without_tokens", "no_more_than_the_tokens")
FULL = ("full_experts", "a_rank_without_tokens", "no_more_than_the_tokens")

slip(
    "answers in the experts' order",
    "y[kept] = probability[kept, None] * answers",
    "y[: len(kept)] = probability[kept, None] * answers",
    fails=ALL,
    says="put each answer back into its token's place",
)
slip("dropped tokens are 0", "y = x.clone()", "y = torch.zeros_like(x)", fails=FULL, says="it must pass unchanged")
slip(
    "without the gate's probability",
    "y[kept] = probability[kept, None] * answers",
    "y[kept] = answers",
    fails=ALL,
    says="Multiply the expert's answer",
)
slip("nothing is dropped", "()[:capacity, 0] for e in", "()[:, 0] for e in", fails=FULL, says="Nothing is dropped")
slip("the latest are kept", "[:capacity, 0]", "[:, 0].flip(0)[:capacity]", fails=FULL, says="here it keeps others")
slip("drops and does not say so", "y, len(x) - len(kept)", "y, 0", fails=FULL, says="dropped on rank")
slip(
    "capacity for all experts together",
    "parts = [(chosen == e).nonzero()[:capacity, 0] for e in range(comm.size)]",
    "early = torch.arange(len(x)) < capacity\n"
    "    parts = [((chosen == e) & early).nonzero()[:, 0] for e in range(comm.size)]",
    fails=FULL,
    says="y on rank",
)
slip("softmax over the tokens", "(x @ gate.T).softmax(1)", "(x @ gate.T).softmax(0)", fails=ALL, says="y on rank")


@wrong("all tokens to every expert", fails="no_more_than_the_tokens", says="You send all tokens to every expert")
def moe(x, gate, w, capacity, comm):
    probability, chosen = (x @ gate.T).softmax(1).max(1)
    p, n = comm.size, len(x)
    coming = all_to_all(torch.full((p, 1), n), comm).flatten().tolist()
    arrived = all_to_all(x.repeat(p, 1), comm, [n] * p, coming)
    answers = all_to_all(expert(arrived, w), comm, coming, [n] * p).view(p, n, x.shape[1])
    y, kept = x.clone(), 0
    for e in range(p):
        mine = (chosen == e).nonzero()[:capacity, 0]
        y[mine] = probability[mine, None] * answers[e, mine]
        kept += len(mine)
    return y, n - kept


@wrong(
    "always as many rows as there is room for", fails="no_more_than_the_tokens", says="You send more than the kept rows"
)
def moe(x, gate, w, capacity, comm):
    probability, chosen = (x @ gate.T).softmax(1).max(1)
    p, sent = comm.size, x.new_zeros(comm.size * capacity, x.shape[1])
    parts = [(chosen == e).nonzero()[:capacity, 0] for e in range(p)]
    for e, part in enumerate(parts):
        sent[e * capacity : e * capacity + len(part)] = x[part]
    arrived = all_to_all(sent, comm, [capacity] * p, [capacity] * p)
    answers = all_to_all(expert(arrived, w), comm, [capacity] * p, [capacity] * p)
    y = x.clone()
    for e, part in enumerate(parts):
        y[part] = probability[part, None] * answers[e * capacity : e * capacity + len(part)]
    return y, len(x) - sum(map(len, parts))


@wrong("its own expert for all of its tokens", fails=ALL, says="y on rank")
def moe(x, gate, w, capacity, comm):
    probability, chosen = (x @ gate.T).softmax(1).max(1)
    return probability[:, None] * expert(x, w), 0


slip(
    "writes into the tokens",
    "y = x.clone()\n    y[kept] = probability[kept, None] * answers\n    return y, len(x) - len(kept)",
    "x[kept] = probability[kept, None] * answers\n    return x, len(x) - len(kept)",
    fails="no_more_than_the_tokens",
    says="changed its argument x",
)


@wrong("the weights travel, not the tokens", fails=ALL, says="gives every rank the same")
def moe(x, gate, w, capacity, comm):
    weights = w.new_zeros(comm.size, *w.shape)
    weights[comm.rank] = w
    comm.all_reduce(weights)
    probability, chosen = (x @ gate.T).softmax(1).max(1)
    y, kept = x.clone(), 0
    for e in range(comm.size):
        mine = (chosen == e).nonzero()[:capacity, 0]
        y[mine] = probability[mine, None] * expert(x[mine], weights[e])
        kept += len(mine)
    return y, len(x) - kept


slip(
    "centers the gate in place",
    "    probability, chosen",
    "    gate -= gate.mean(0)\n    probability, chosen",
    fails="no_more_than_the_tokens",
    says="changed its argument gate",
)
slip(
    "a rank without tokens stays away",
    "    probability, chosen",
    "    if not len(x):\n        return x, 0\n    probability, chosen",
    fails="a_rank_without_tokens",
    says="deadlock",
)
slip(
    "every rank gets the weights of every expert",
    "    arrived = all_to_all(x[kept], comm, counts, coming)\n"
    "    answers = all_to_all(expert(arrived, w), comm, coming, counts)\n",
    "    experts = all_to_all(w.repeat(comm.size, 1), comm).view(comm.size, *w.shape)\n"
    "    answers = torch.cat([expert(x[part], one) for part, one in zip(parts, experts, strict=True)])\n",
    fails=ALL,
    says="no weights",
)
slip(
    "counts that are sent without a wait",
    "    coming = all_to_all(torch.tensor(counts)[:, None], comm).flatten().tolist()",
    """    mine, theirs, others = torch.tensor(counts), torch.tensor(counts), set(range(comm.size)) - {comm.rank}
    for e in others:
        comm.isend(mine[e : e + 1], e)
    for e in others:
        comm.recv(theirs[e : e + 1], e)
    coming = theirs.tolist()""",
    fails="no_more_than_the_tokens",
    says="is never waited for",
)
slip("answers of float64", "y = x.clone()", "y = x.double()", fails=ALL, says="float32")
