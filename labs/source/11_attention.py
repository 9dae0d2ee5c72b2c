# %% [markdown]
# # Lab {{number attention}} · Attention
# ## One new layer, and why it needs many machines
#
# So far every layer processed its rows one by one. **Attention** is the layer in which tokens look at each other; a transformer adds it to the layers that you
# know. It has a price: every token meets every other one, so $n$ tokens have $n^2$ scores. You write the layer, then rewrite it so that the scores never exist
# all at once. The same few lines then work across machines: first you cut the sequence, then you distribute the experts.
#
# **You will be able to**
# - write a head of attention with a causal mask, and a transformer block around it;
# - compute a softmax in one pass over blocks, as FlashAttention does;
# - compute what a block costs in weights, operations and memory, and the length from which the scores dominate;
# - run attention over a sequence that no rank holds completely, and share the work evenly;
# - send tokens to experts, and measure how evenly a gate distributes them.
#
# **100 points, 7 exercises, about 90 minutes: 17 reading + 68 exercises + 5 runs; two extra exercises take 28 more, and have 27 of the points.** You need matrix products and a softmax (lab 04), and lab 07's `comm`. No GPU.
#
# | here | means |
# |---|---|
# | $n$, $d$ | tokens of a sequence; numbers of a query, a key or a value of one head |
# | $h$, $a$ | numbers of a token in the whole block (hidden size); heads: $h = a\,d$ |
# | $b$ | sequences in a batch |
# | $p$ | ranks |

# %%
import math

import torch
from IPython.display import display
from torch import Tensor
from torch.nn.functional import layer_norm

from autograder import check
from hpcdl.comm import simulate
from hpcdl.memory import meter
from hpcdl.widgets import guess, guessed, reveal, style, when_solved, your_program
from hpcdl.widgets.pictures import attention_weights

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# Left: 16 tokens. Row $i$ shows how token $i$ shares its attention among all tokens; each row sums to 1. Right: the memory of one layer, for longer and longer sequences.
#
# Before you move anything, guess: how many times as many scores do twice as many tokens have? Then:
# 1. Remove the **mask**. Which rows change, and which one does not?
# 2. Lower the **temperature** to 0.1, then raise it to 10. What do the rows turn into?
# 3. Move the **tokens** to a million. What still fits into 80 GB?
# 4. Now add **ranks**.

# %%
guess("attention.twice", "How many times as many scores does a sequence of twice as many tokens have?", unit="×")

# %%
with when_solved():
    guessed("attention.twice")
    reveal(
        "attention.twice", attention_weights.held(2048, 1)["all scores"] / attention_weights.held(1024, 1)["all scores"]
    )
    display(attention_weights.explorable())

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. With the mask, token $i$ sees tokens 0 to $i$. The last token always sees all of them, so its row does not change.
# 2. At a low temperature the largest score gets all the weight. At a high temperature all scores count equally, and the output is a plain mean.
# 3. Keys and values grow with $n$, the scores with $n^2$, so the scores are the first that no longer fit. A block of them fits much longer.
# 4. In a ring over $p$ ranks each rank has a $p$-th of the tokens, so everything shrinks. You build this ring in this lab.
# </details>

# %% [markdown]
# ## One head
#
# Each token has a **query** (what it looks for), a **key** (how others find it) and a **value** (what it contributes): three rows of $d$ numbers. The score of
# token $i$ for token $j$ is $q_i \cdot k_j / \sqrt d$. A softmax turns the scores of token $i$ into weights, and its output is the weighted mean of the values
# (Vaswani et al. 2017):
#
# $$ \text{attention}(Q, K, V) = \text{softmax}\Big(\frac{QK^T}{\sqrt d}\Big)\,V. $$
#
# Why $\sqrt d$? The dot product of two random vectors of $d$ numbers, each with variance 1, has the standard deviation $\sqrt d$. Without the division, long vectors would give a softmax
# in which one weight is 1 and all others are 0, and such a softmax has no gradient.
#
# A **causal mask** hides the future: a language model predicts the next token, so token $i$ may only see tokens 0 to $i$, itself included. A hidden
# score is $-\infty$ *before* the softmax. Its weight is then 0, and the other weights of the row still sum to 1.

# %% [markdown]
# {{exercise attention}}
#
# Write one head. Leading dimensions are batches: `attention` of `(3, 5, n, d)` computes 15 heads at once. The last two dimensions are tokens and numbers. Do
# not change the arguments.
#
# <details><summary>Hint 1: the scores</summary>
#
# `q @ k.transpose(-1, -2)` works for any number of leading dimensions; `k.T` only for two.
# </details>
# <details><summary>Hint 2: the mask</summary>
#
# `torch.ones(n, n, dtype=torch.bool).triu(1)` is True above the diagonal, where $j > i$. `scores.masked_fill(hidden, -math.inf)` fills a copy.
# </details>


# %%
def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    """Return softmax(q k^T / sqrt(d)) v, of shape (..., n, width).

    q: (..., n, d). k: (..., m, d). v: (..., m, width). causal: row i sees rows 0 to i only;
    then m = n. Scores of any size are allowed. The result has the dtype of q, k and v.

    >>> q, k, v = torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([[2.0], [4.0]])
    >>> attention(q, k, v).tolist()
    [[2.0], [3.0]]
    """
    # BEGIN SOLUTION
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        n = q.shape[-2]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v
    # END SOLUTION


# %%
check("attention.attention")

# %% [markdown]
# ## One pass over blocks
#
# A softmax needs the largest score and the sum of a row, so it seems to need the whole row. It does not: you can compute a **running** softmax. For each query
# keep the largest score $t$ so far, the sum $s = \sum e^{\text{score} - t}$ and the output $o = \sum e^{\text{score} - t}\,v$. When a block brings a larger
# score $t'$, everything kept so far is too large by a factor of $e^{t'-t}$:
#
# $$ s \leftarrow s\,e^{t-t'} + \sum_{\text{block}} e^{\text{score}-t'}, \qquad o \leftarrow o\,e^{t-t'} + \sum_{\text{block}} e^{\text{score}-t'}\,v. $$
#
# At the end the output is $o/s$. No exponent is ever above 0, so nothing overflows (Milakov and Gimelshein 2018). FlashAttention does this with blocks that fit
# into a processor's fast memory (Dao et al. 2022), and ring attention with blocks that come from other machines. Both use the function that you write next.

# %% [markdown]
# {{exercise online_softmax}}
#
# Write both functions. `absorb` adds one block to the running softmax. It begins with $t = -\infty$, $s = 0$ and $o = 0$. A score may be $-\infty$ (hidden);
# each row sees at least one score of the first block. `flash` is causal attention by blocks of `block` keys; the last block may be shorter. It holds only a few
# tensors of `n × block` numbers at a time, and none of `n × n`. Do not change the arguments.
#
# <details><summary>Hint 1: absorb</summary>
#
# The new maximum is the larger of the old one and the block's: `.amax(1, keepdim=True)` keeps the column. The block's
# weights are exponentials of scores minus the *new* maximum. Old sums must shrink by $e^{\text{old} - \text{new}}$,
# which is $e^{-\infty} = 0$ in the first block.
# </details>
# <details><summary>Hint 2: flash</summary>
#
# Loop over `start` in `range(0, n, block)`. The keys of a block have the positions `start` to `start + block - 1`; row $i$ sees positions up to $i$: compare
# `torch.arange(n)[:, None]` with the positions.
# </details>


# %%
def absorb(
    top: Tensor,
    total: Tensor,
    out: Tensor,
    scores: Tensor,
    v: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (top, total, out) of a running softmax after one more block.

    top: (n, 1), the largest score of each row so far. total: (n, 1), the sum of exp(score -
    top). out: (n, d), the sum of exp(score - top) v. scores: (n, c). v: (c, d).

    >>> first = torch.tensor([[-math.inf]]), torch.zeros(1, 1), torch.zeros(1, 1)
    >>> scores, v = torch.tensor([[3.0, 3.0]]), torch.tensor([[1.0], [5.0]])
    >>> [x.item() for x in absorb(*first, scores, v)]
    [3.0, 2.0, 6.0]
    """
    # BEGIN SOLUTION
    new_top = torch.maximum(top, scores.amax(1, keepdim=True))
    weights, shrink = (scores - new_top).exp(), (top - new_top).exp()
    return new_top, total * shrink + weights.sum(1, keepdim=True), out * shrink + weights @ v
    # END SOLUTION


def flash(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """Return causal attention of q, k, v (n, d), by blocks of `block` keys; the
    last block may be shorter.

    >>> q, k, v = torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([[2.0], [4.0]])
    >>> flash(q, k, v, block=1).tolist()
    [[2.0], [3.0]]
    """
    # BEGIN SOLUTION
    n, d = q.shape
    top, total, out = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)
    for start in range(0, n, block):
        keys, values = k[start : start + block], v[start : start + block]
        hidden = torch.arange(n)[:, None] < torch.arange(start, start + len(keys))
        scores = (q @ keys.T / math.sqrt(d)).masked_fill_(hidden, -math.inf)
        top, total, out = absorb(top, total, out, scores, values)
    return out / total
    # END SOLUTION


# %%
check("attention.online_softmax")

# %%
guess(
    "attention.peak",
    "2,048 tokens of 64 numbers: how many times as much peak memory does attention need as flash with blocks of 64?",
    unit="×",
)


# %%
def peak_of(function, n: int, *args) -> int:
    """Return the peak memory of the function on n tokens of 64 numbers, in bytes."""
    q, k, v = torch.randn(3, n, 64, generator=torch.Generator().manual_seed(0))
    with meter(q, k, v) as memory:
        function(q, k, v, *args)
    return memory.peak.total


with when_solved():
    guessed("attention.peak")
    print(f"{'tokens':>6}{'attention':>12}{'flash, 64':>12}   MB at the peak")
    for n in (256, 512, 1024, 2048):
        whole, blocks = peak_of(attention, n), peak_of(flash, n, 64)
        print(f"{n:6,}{whole / 1e6:12.1f}{blocks / 1e6:12.1f}")
    reveal("attention.peak", whole / blocks)

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# With twice the tokens, `attention` needs four times the memory, and `flash` twice the memory. The work is the same: every score is still computed once. On a
# GPU, FlashAttention is also faster, because the scores no longer go to the large memory and back.
# </details>

# %% [markdown]
# ## Heads, and a block around them
#
# One head can look for only one thing at a time. A layer has $a$ parallel **heads**, each on its own $d = h/a$ of a token's $h$ numbers: head 0 has the first
# $d$ numbers, head 1 the next $d$, and so on. Splitting changes the shape from $(n, h)$ to $(a, n, d)$, merging changes it back.
#
# A transformer **block** adds two layers to its input, one after the other (Xiong et al. 2020 call this order pre-norm):
#
#     x ─┬─ norm ─ qkv ─ split ─ attention ─ merge ─ out ─ + ─┬─ norm ─ up ─ ReLU ─ down ─ + ─ y
#        └──────────────────────────────────────────────────┘ └──────────────────────────────┘
#
# The two lower lines are **residuals**: they add the input to the output, so that a gradient reaches the first layer of a deep network undiminished. A **norm**
# scales the numbers of each token to mean 0 and variance 1. It is given:


# %%
def norm(x: Tensor) -> Tensor:
    """Return x with mean 0 and variance 1 along its last dimension."""
    return layer_norm(x, x.shape[-1:])


# %% [markdown]
# {{exercise heads}}
#
# Split the heads, merge them again, and build the block. `transformer_block` has four weight matrices in `w`, all without biases: `w["qkv"]` of shape $(h,
# 3h)$, whose columns are first those of all queries, then of all keys, then of all values; `w["out"]` $(h, h)$; `w["up"]` $(h, 4h)$; `w["down"]` $(4h, h)$.
# They multiply from the right: `x @ w["up"]`. Its attention is causal.
#
# <details><summary>Hint 1: split</summary>
#
# `x.unflatten(-1, (heads, -1))` is $(…, n, a, d)$; then exchange two dimensions.
# </details>
# <details><summary>Hint 2: q, k and v</summary>
#
# `q, k, v = (norm(x) @ w["qkv"]).chunk(3, dim=-1)`, then split each of them.
# </details>


# %%
def split(x: Tensor, heads: int) -> Tensor:
    """Return x (..., n, h) as (..., heads, n, h / heads): head 0 has each token's first
    numbers.

    >>> split(torch.arange(8).view(2, 4), heads=2).tolist()
    [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    """
    # BEGIN SOLUTION
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)
    # END SOLUTION


def merge(x: Tensor) -> Tensor:
    """Return x (..., heads, n, d) as (..., n, heads d): the inverse of `split`.

    >>> merge(torch.tensor([[[0, 1], [4, 5]], [[2, 3], [6, 7]]])).tolist()
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    # BEGIN SOLUTION
    return x.transpose(-2, -3).flatten(-2)
    # END SOLUTION


def transformer_block(x: Tensor, w: dict[str, Tensor], heads: int) -> Tensor:
    """Return the output (..., n, h) of a block with the weights w for x (..., n, h).

    Change neither x nor w.
    """
    # BEGIN SOLUTION
    q, k, v = (split(part, heads) for part in (norm(x) @ w["qkv"]).chunk(3, dim=-1))
    x = x + merge(attention(q, k, v)) @ w["out"]
    return x + torch.relu(norm(x) @ w["up"]) @ w["down"]
    # END SOLUTION


# %%
check("attention.heads")

# %% [markdown]
# ## What a block costs
#
# Count your block for $b$ sequences of $n$ tokens.
#
# - **Weights**: the four matrices.
# - **FLOPs** of the forward pass: a product of an $(r \times c)$ and a $(c \times s)$ matrix takes $2rcs$. There are four products with weight matrices, and
#   two without: the scores, and the output of the softmax times the values. A mask hides half of the scores, but plain products compute them all. Leave out
#   norms, ReLU and softmax.
# - **Activations**, the numbers that the backward pass needs again: the input of each norm, both factors of each product (except the weights), and what softmax
#   and ReLU return. Count a tensor once even if it is needed twice, such as the output of a norm that enters a product. So the scores before the softmax do not
#   count, and neither do `up`'s outputs before ReLU.

# %% [markdown]
# {{exercise block_work}}
#
# Write these three counts as formulas.
#
# <details><summary>Hint 1: weights and FLOPs</summary>
#
# $3h^2 + h^2 + 4h^2 + 4h^2$ weights; each is used once for each of the $bn$ tokens. For each pair of tokens, each of the other two products does $2d$
# operations in each of $a$ heads, and $ad = h$.
# </details>
# <details><summary>Hint 2: activations</summary>
#
# In units of $bnh$: two inputs of norms, two outputs of norms, q, k, v, the merged output, and four for ReLU. Add the softmax of each head.
# </details>


# %%
def block_work(b: int, n: int, h: int, heads: int) -> tuple[int, int, int]:
    """Return (weights, FLOPs of a forward pass, activations) of a block for b sequences of
    n tokens; weights and activations are numbers, not bytes.

    >>> block_work(b=1, n=1, h=2, heads=1)
    (48, 104, 25)
    """
    # BEGIN SOLUTION
    weights = 12 * h**2
    return weights, 2 * b * n * weights + 4 * b * n**2 * h, 12 * b * n * h + b * heads * n**2
    # END SOLUTION


# %%
check("attention.block_work")

# %%
guess(
    "attention.half",
    "A block of GPT-3 (h = 12,288, 96 heads): from how many tokens on do the scores take more memory than all the rest?",
    unit="tokens",
)

# %%
with when_solved():
    guessed("attention.half")
    print(
        f"{'tokens':>9}{'TFLOP':>10}{'of it scores':>13}{'GB kept':>11}{'of it scores':>14}   (one sequence, 16 bits)"
    )
    for n in (1024, 2048, 8192, 73_728, 1_048_576):
        weights, flops, kept = block_work(1, n, 12_288, 96)
        scores = flops - 2 * n * weights, kept - 12 * n * 12_288
        print(
            f"{n:9,}{flops / 1e12:10,.1f}{100 * scores[0] / flops:11.0f} %{2 * kept / 1e9:11,.1f}{100 * scores[1] / kept:12.0f} %"
        )
    reveal("attention.half", next(n for n in range(1, 10_000) if 96 * n**2 >= 12 * n * 12_288))

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# The scores overtake the rest at different lengths: in memory at $n = 12h/a = 12d$, which is 1,536 tokens, but in operations only at $n = 6h$, which is 73,728.
# Long before the scores cost time, they cost memory. So first keep only blocks of them, as `flash` does. Then the keys and values themselves become too large
# for one machine, and the sequence must be cut.
# </details>

# %% [markdown]
# ## Cut the sequence
#
# For a million tokens neither the scores nor the keys and values fit into one machine. So cut the *sequence*: each rank holds a **block**, the queries, keys
# and values of some tokens. Its queries stay; keys and values go around a ring, and after $p-1$ steps each query has met every key (Liu et al. 2023, "Ring
# attention"; Li et al. 2021 call it sequence parallelism). The softmax is your running one.
#
# A mistake here still looks like attention. In 2025 the gradient of attention over a cut sequence was found to be off by more than its own size in
# Megatron-LM (#1464). Only a comparison with one machine shows it, and the check makes that comparison.
#
# **Causal** attention: a token sees itself and what is before it *in the sequence*. All ranks know where the tokens of each block are: `positions[r]` holds the
# positions of rank r's tokens. A score with `positions[rank][i] < positions[source][j]` counts as $-\infty$.

# %% [markdown]
# {{exercise ring_attention}}
#
# Write the ring, and a fair way to deal out the tokens.
#
# **Which rank works how much?** If rank $r$ has the $r$-th piece of the sequence, rank 0 sees nothing in most steps, and the last rank sees everything in each
# step. All ranks wait for the slowest one. `stripes(n, p)` deals the tokens out so that each rank sees about half of each block (Brandon et al. 2023, "Striped
# attention").
#
# <details><summary>Hint 1: the ring</summary>
#
# `kv = torch.stack([k, v])` makes one message of two blocks. In step s this rank holds the block of rank `source = (rank - s) % p`. In all steps except the
# last, begin `comm.isend(kv, right)` and `comm.irecv(arriving, left)`, work, wait for both, and continue with `kv = arriving`. `arriving` is as long as the
# block of `(source - 1) % p`.
# </details>
# <details><summary>Hint 2: a step</summary>
#
# `scores = (q @ kv[0].T / math.sqrt(d)).masked_fill(~visible, -math.inf)`, then `absorb`. In the first step a token meets itself, so each row sees a score.
# </details>
# <details><summary>Hint 3: stripes</summary>
#
# `torch.arange(r, n, p)` are the tokens r, r + p, r + 2p, ...
# </details>


# %%
def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: list[Tensor],
    comm,
) -> Tensor:
    """Return this rank's rows (c, d) of softmax(q k^T / sqrt(d)) v over all ranks' tokens,
    with later positions masked.

    q, k, v: this rank's tokens, (c, d). positions: for each rank its tokens' positions in
    the sequence, int64; block r has len(positions[r]) >= 1 tokens. Keys and values go
    around the ring: 2 blocks in each of p - 1 steps; hold those of at most two ranks at a
    time. Work on a block while the next one arrives. Do not change the arguments, and wait
    for every message.
    """
    # BEGIN SOLUTION
    p, rank, d = comm.size, comm.rank, q.shape[1]
    kv = torch.stack([k, v])
    running = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(q)
    for step in range(p):
        source, requests = (rank - step) % p, []
        if step < p - 1:
            arriving = kv.new_empty(2, len(positions[(source - 1) % p]), d)
            requests = [comm.isend(kv, (rank + 1) % p), comm.irecv(arriving, (rank - 1) % p)]
        visible = positions[rank][:, None] >= positions[source]
        scores = (q @ kv[0].T / math.sqrt(d)).masked_fill(~visible, -math.inf)
        running = absorb(*running, scores, kv[1])
        for request in requests:
            request.wait()
        kv = arriving if requests else kv
    _, total, out = running
    return out / total
    # END SOLUTION


def stripes(n: int, p: int) -> list[Tensor]:
    """Return for each of p ranks the positions of its tokens, int64, so that all ranks see
    about equally many tokens in every step.

    >>> stripes(4, 2)
    [tensor([0, 2]), tensor([1, 3])]
    """
    # BEGIN SOLUTION
    return [torch.arange(rank, n, p) for rank in range(p)]
    # END SOLUTION


# %%
check("attention.ring_attention")

# %% [markdown]
# Predict what *your* ring does. These questions have no points; a run of your program gives the answers.


# %%
def around_the_ring(comm):
    q, k, v = torch.ones(3, 5, 8)
    ring_attention(q, k, v, list(torch.arange(5 * comm.size).split(5)), comm)


with when_solved():
    your_program(
        "attention.ring_attention",
        around_the_ring,
        p=6,
        on="5 tokens of 8 numbers on each rank",
    )

# %%
guess(
    "attention.stripes",
    "32 tokens on 4 ranks. All wait for the slowest in each step. What share of the pieces' time do stripes take?",
    unit="%",
)


# %%
def seen(positions, step: int) -> list[int]:
    """Return the pairs of tokens that each rank works on in a step of the ring."""
    p = len(positions)
    return [int((positions[r][:, None] >= positions[(r - step) % p]).sum()) for r in range(p)]


with when_solved():
    guessed("attention.stripes")
    pieces, dealt = list(torch.arange(32).tensor_split(4)), stripes(32, 4)
    print("step   pieces of the sequence    stripes       (pairs of tokens on ranks 0, 1, 2, 3)")
    for step in range(4):
        print(f"{step:4}   {seen(pieces, step)!s:26}{seen(dealt, step)}")
    slowest = [sum(max(seen(positions, step)) for step in range(4)) for positions in (pieces, dealt)]
    print(f"\nThe slowest rank of each step, added up: {slowest[0]} against {slowest[1]} pairs.")
    reveal("attention.stripes", 100 * slowest[1] / slowest[0])

# %% [markdown]
# ## Experts
#
# The other half of a block, `up` and `down`, has two thirds of its weights. A layer with $e$ times as many weights need not do $e$ times the work: split it
# into $e$ **experts**, each a separate layer, and let a **gate** choose $k$ of them for each token. The gate is a matrix $G$, and its odds for a token are
# $\text{softmax}(Gx)$.
#
# Gates have favourites. To protect an expert from too many tokens, it accepts at most `capacity` choices. The others are **dropped**: their weight is 0. GShard
# (Lepikhin et al. 2020) serves the first choices of all tokens, in the order of the tokens, before any second choice. The output of a token is the mean of its
# experts' answers, weighted by their odds divided by the sum of the $k$ odds.
#
# To keep the gate even, a **balance loss** is added to the loss of the network (Fedus et al. 2021): $e \sum_i f_i P_i$, where $f_i$ is the share of the tokens
# whose first choice is expert $i$, and $P_i$ the mean of its odds over all tokens. It is 1 if the gate prefers no expert, and grows to $e$ if one expert is
# certain to get every token.

# %% [markdown]
# {{exercise route}}
#
# Write the choice of the experts, and the balance loss.
#
# <details><summary>Hint 1: choose</summary>
#
# `chosen, experts = odds.topk(k, dim=1)`, largest first; `chosen / chosen.sum(1, keepdim=True)` are the weights before anything is dropped.
# </details>
# <details><summary>Hint 2: full experts</summary>
#
# Count in a list how many choices each expert has accepted. Write two loops: over the columns of `experts` and, inside it, over the tokens.
# </details>


# %%
def route(odds: Tensor, k: int, capacity: int) -> tuple[Tensor, Tensor]:
    """Return the k experts of each token (n, k), int64, best odds first, and the weights
    (n, k) of their answers.

    odds: (n, e); each row sums to 1. A weight is the expert's odds over the sum of the k
    odds, and 0 if the expert is full: it takes `capacity` choices, first choices before
    second choices, and among these earlier tokens before later ones. Do not change odds.

    >>> experts, weights = route(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), k=1, capacity=1)
    >>> experts[0].tolist(), weights[0].tolist()
    ([0], [1.0])
    """
    # BEGIN SOLUTION
    chosen, experts = odds.topk(k, dim=1)
    weights, taken = chosen / chosen.sum(1, keepdim=True), [0] * odds.shape[1]
    for choice in range(k):
        for token, expert in enumerate(experts[:, choice].tolist()):
            if taken[expert] == capacity:
                weights[token, choice] = 0
            else:
                taken[expert] += 1
    return experts, weights
    # END SOLUTION


def balance(odds: Tensor) -> float:
    """Return the balance loss of odds (n, e): e times the sum over experts of the share of
    tokens that prefer it times its mean odds.

    >>> balance(torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    1.0
    """
    # BEGIN SOLUTION
    e = odds.shape[1]
    share = odds.argmax(1).bincount(minlength=e) / len(odds)
    return e * float(share @ odds.mean(0).to(share.dtype))
    # END SOLUTION


# %%
check("attention.route")

# %% [markdown]
# Now put one expert on each rank, with $k = 1$ and the odds $g_e$ as the weight: the token's output is $g_e \cdot \text{expert}_e(x)$ (the Switch transformer).
# An **all-to-all** sends the tokens to their experts, the experts work, and a second all-to-all sends the answers back. Each rank sends at most `capacity`
# tokens to each expert. A dropped token passes the layer unchanged, as if the layer were not there.
#
# `all_to_all(x, comm, counts, out_counts)` is the library's: it sends the first `counts[0]` rows of `x` to rank 0, the next `counts[1]` to rank 1, and so on,
# and returns the received rows, first the `out_counts[0]` rows from rank 0. Each rank's expert is

# %%
from hpcdl.collectives import all_to_all


def expert(x: Tensor, w: Tensor) -> Tensor:
    """Return the output of an expert with weights w (d, d) for tokens x (n, d)."""
    return torch.relu(x @ w)


# %% [markdown]
# {{exercise moe}}
#
# Write this layer for one rank.
#
# <details><summary>Hint 1: which token goes where</summary>
#
# `odds = (x @ gate.T).softmax(1)`; `probability, chosen = odds.max(1)`. The tokens for expert `e` are `(chosen == e).nonzero()[:, 0]`, in order; keep the first
# `capacity` of them.
# </details>
# <details><summary>Hint 2: there</summary>
#
# Put the indices of the kept tokens into one tensor `kept`, expert by expert. `x[kept]` are the rows to send, and `counts` says how many go to each rank. The
# experts do not know how many will arrive, so first send each rank its number: `all_to_all(torch.tensor(counts)[:, None], comm)` with one row for each rank.
# </details>
# <details><summary>Hint 3: and back</summary>
#
# Call it again with the two counts exchanged. The answers return in the order of `kept`, so `y[kept] = ...` puts each into its place; the other rows of `y` are
# rows of `x`.
# </details>


# %%
def moe(x: Tensor, gate: Tensor, w: Tensor, capacity: int, comm) -> tuple[Tensor, int]:
    """Return the output of a layer of p experts, one on each rank, for this rank's tokens,
    and how many tokens were dropped.

    x: this rank's tokens (n, d); n may differ between ranks, and may be 0. gate: (p, d),
    equal on all ranks. w: (d, d), the weights of this rank's expert. Do not change them. An
    expert takes the first `capacity` tokens of each rank; the others pass unchanged. Send
    tokens and counts, but no weights.
    """
    # BEGIN SOLUTION
    probability, chosen = (x @ gate.T).softmax(1).max(1)
    parts = [(chosen == e).nonzero()[:capacity, 0] for e in range(comm.size)]
    kept, counts = torch.cat(parts), [len(part) for part in parts]
    coming = all_to_all(torch.tensor(counts)[:, None], comm).flatten().tolist()
    arrived = all_to_all(x[kept], comm, counts, coming)
    answers = all_to_all(expert(arrived, w), comm, coming, counts)
    y = x.clone()
    y[kept] = probability[kept, None] * answers
    return y, len(x) - len(kept)
    # END SOLUTION


# %%
check("attention.moe")

# %% [markdown]
# Predict what *your* layer of experts does:


# %%
def five_tokens_each(comm):
    moe(torch.eye(5), torch.eye(5), torch.eye(5), 1, comm)


with when_solved():
    your_program(
        "attention.moe",
        five_tokens_each,
        p=5,
        on="5 tokens of 5 numbers on each rank, one for each expert",
    )

# %%
guess(
    "attention.dropped",
    "4 experts have a gate without a favourite, and room for 16 of each rank's 64 tokens. How many tokens are dropped?",
    unit="%",
)


# %%
def dropped_share(comm, capacity: int, favourite: float) -> tuple[float, float]:
    """Return the share of 64 tokens that find their expert full, and the balance loss.

    favourite: how much the gate prefers expert 0.
    """
    g = torch.Generator().manual_seed(comm.rank)
    x, gate = torch.randn(64, 8, generator=g), torch.randn(comm.size, 8, generator=torch.Generator().manual_seed(9))
    x[:, 0], gate[:, 0] = 1.0, torch.tensor([favourite] + [0.0] * (comm.size - 1))
    return moe(x, gate, torch.eye(8), capacity, comm)[1] / 64, balance((x @ gate.T).softmax(1))


with when_solved():
    guessed("attention.dropped")
    print(
        "capacity per expert and rank      8     16     24     32     64    balance    (64 tokens on each of 4 ranks)"
    )
    dropped = {}
    for favourite in (0.0, 2.0, 4.0):
        for capacity in (8, 16, 24, 32, 64):
            found = torch.tensor(simulate(dropped_share, 4, capacity, favourite).results).mean(0)
            dropped[favourite, capacity] = found[0].item()
        shares = "".join(f"{100 * share:5.0f} %" for (which, _), share in dropped.items() if which == favourite)
        print(f"gate prefers expert 0 by {favourite:.0f}   {shares}{found[1]:9.2f}")
    reveal("attention.dropped", 100 * dropped[0.0, 16])

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# Even a fair gate is never perfectly even: if each expert has room for exactly its share, 16 of 64, some experts drop tokens while others have room. A gate
# with a favourite drops many more: one expert is full, and the others wait for work. The balance loss measures this, so mixtures of experts are trained with
# one.
# </details>

# %% [markdown]
# ## For those who want more
#
# This challenge has no points and no check, but a proof to demand of yourself.
#
# A language model writes one token at a time, and each new token attends to all earlier ones. Keep the keys and values of the earlier tokens (a *KV cache*),
# and write `step(x, cache)`, which takes one token through your block. *Proof:* ten steps give the same as one call of `transformer_block` on ten tokens, to
# 1e-12 in float64, and the time of a step grows with $n$, not with $n^2$.

# %% [markdown]
# ## Further reading
#
# - A. Vaswani et al. 2017, "Attention is all you need"; R. Xiong et al. 2020, "On layer normalization in the transformer architecture".
# - M. Milakov and N. Gimelshein 2018, "Online normalizer calculation for softmax"; T. Dao et al. 2022, "FlashAttention: Fast and memory-efficient
#   exact attention with IO-awareness".
# - V. Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models": what a block keeps, in bytes.
# - H. Liu et al. 2023, "Ring attention with blockwise transformers for near-infinite context"; W. Brandon et al. 2023, "Striped attention"; S. Li et
#   al. 2021, "Sequence parallelism".
# - D. Lepikhin et al. 2020, "GShard"; W. Fedus et al. 2021, "Switch transformers: Scaling to trillion parameter models with simple and efficient sparsity".
