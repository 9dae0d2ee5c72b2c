"""Wrong answers to `split`, `merge` and `transformer_block`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("attention.heads")
BLOCKS = ("many_heads", "batches")
ALL = ("one_head", *BLOCKS)


@wrong("numbers of heads take turns", fails=("split_heads", *BLOCKS), says="the heads are mixed")
def split(x, heads):
    return x.unflatten(-1, (-1, heads)).movedim(-1, -3)


@wrong("tokens cut into heads", fails=("split_heads", *BLOCKS), says="cuts the tokens, not their numbers")
def split(x, heads):
    return x.reshape(*x.shape[:-2], heads, x.shape[-2], x.shape[-1] // heads)


@wrong("dimensions not exchanged", fails=("split_heads", *ALL), says="has shape")
def split(x, heads):
    return x.unflatten(-1, (heads, -1))


@wrong("a split without batches", fails=("split_heads", *ALL), says="values to unpack")
def split(x, heads):
    n, h = x.shape
    return x.view(n, heads, h // heads).transpose(0, 1)


@wrong("merged without an exchange", fails=("merge_heads", *BLOCKS), says="Exchange heads and tokens")
def merge(x):
    return x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1])


@wrong("numbers of merged heads take turns", fails=("merge_heads", *BLOCKS), says="do not interleave")
def merge(x):
    return x.movedim(-3, -1).flatten(-2)


@wrong("q, k and v of a head next to each other", fails=BLOCKS, says="all queries, then all keys")
def transformer_block(x, w, heads):
    q, k, v = split(norm(x) @ w["qkv"], heads).chunk(3, dim=-1)
    x = x + merge(attention(q, k, v)) @ w["out"]
    return x + torch.relu(norm(x) @ w["up"]) @ w["down"]


@wrong("one head", fails=BLOCKS, says="one head with all numbers")
def transformer_block(x, w, heads):
    q, k, v = (norm(x) @ w["qkv"]).chunk(3, dim=-1)
    x = x + attention(q, k, v) @ w["out"]
    return x + torch.relu(norm(x) @ w["up"]) @ w["down"]


@wrong("no mask", fails=ALL, says="The attention of a block is causal")
def transformer_block(x, w, heads):
    q, k, v = (split(part, heads) for part in (norm(x) @ w["qkv"]).chunk(3, dim=-1))
    x = x + merge(attention(q, k, v, causal=False)) @ w["out"]
    return x + torch.relu(norm(x) @ w["up"]) @ w["down"]


slip("no first residual", "x = x + merge", "x = merge", fails=ALL, says="The first residual is missing")
slip("no second residual", "return x + torch", "return torch", fails=ALL, says="The second residual is missing")


@wrong("norms after the sums", fails=ALL, says="Norm the inputs")
def transformer_block(x, w, heads):
    q, k, v = (split(part, heads) for part in (x @ w["qkv"]).chunk(3, dim=-1))
    x = norm(x + merge(attention(q, k, v)) @ w["out"])
    return norm(x + torch.relu(x @ w["up"]) @ w["down"])


@wrong("both layers get x", fails=ALL, says="Both layers get x")
def transformer_block(x, w, heads):
    q, k, v = (split(part, heads) for part in (norm(x) @ w["qkv"]).chunk(3, dim=-1))
    return x + merge(attention(q, k, v)) @ w["out"] + torch.relu(norm(x) @ w["up"]) @ w["down"]


@wrong("no ReLU", fails=ALL, says="ReLU between `up` and `down` is missing")
def transformer_block(x, w, heads):
    q, k, v = (split(part, heads) for part in (norm(x) @ w["qkv"]).chunk(3, dim=-1))
    x = x + merge(attention(q, k, v)) @ w["out"]
    return x + norm(x) @ w["up"] @ w["down"]


slip("GELU", 'relu(norm(x) @ w["up"])', 'nn.functional.gelu(norm(x) @ w["up"])', fails=ALL, says="comes ReLU")
slip("adds into the caller's x", "x = x + merge", "x += merge", fails=ALL, says="changed its argument x")
slip("takes a matrix out of w", 'w["qkv"]', 'w.pop("qkv")', fails=" ".join(ALL), says="changed its argument w")
slip(
    "no norm before the attention",
    '(norm(x) @ w["qkv"])',
    '(x @ w["qkv"])',
    fails=" ".join(ALL),
    says="The first norm is missing",
)
slip("no norm before up", "torch.relu(norm(x)", "torch.relu(x", fails=" ".join(ALL), says="The second norm is missing")
slip(
    "a batch has one dimension",
    "return x + torch.relu",
    "return x.view(*x.shape[-3:]) + torch.relu",
    fails="batches",
    says="transformer_block",
)


@wrong("numbers before heads", fails=("split_heads", *ALL), says="Cut a token's numbers into (heads, d)")
def split(x, heads):
    return x.unflatten(-1, (-1, heads)).transpose(-2, -3)


@wrong("merged within each head", fails=("merge_heads", *ALL), says="Exchange heads and tokens first")
def merge(x):
    return x.flatten(-2)
