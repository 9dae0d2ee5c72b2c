"""Heads, and a transformer block. Oracle: torch's `TransformerEncoderLayer` with the same weights, in float64."""

import torch
from torch import nn

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.ready_made import TRANSFORMERS

exercise = Exercise(
    "heads",
    points=15,
    minutes=14,
    functions=("split", "merge", "transformer_block"),
    forbid=TRANSFORMERS,  # the fused ones are `attention`'s matter, which this calls
    instead="Put it together from split, your attention, merge and matrix products.",
    uses=("attention",),
    offers=("attention",),  # the family
)


Weights = dict[str, torch.Tensor]


def drawn(h: int, rng) -> Weights:
    """Return the four matrices of a block with h numbers for each token."""
    shapes = {"qkv": (h, 3 * h), "out": (h, h), "up": (h, 4 * h), "down": (4 * h, h)}
    return {name: torch.randn(*shape, generator=rng).double() / 2 for name, shape in shapes.items()}


def torchs(w: Weights, x: torch.Tensor, heads: int, causal: bool = True, **options) -> torch.Tensor:
    """Return what torch's layer with the weights w makes of x (b, n, h); `options` are those of its class."""
    h, n = x.shape[2], x.shape[1]
    options = {"norm_first": True, **options}
    layer = nn.TransformerEncoderLayer(h, heads, 4 * h, 0.0, batch_first=True, bias=False, **options).double()
    attention = layer.self_attn
    places = (attention.in_proj_weight, attention.out_proj.weight, layer.linear1.weight, layer.linear2.weight)
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    with torch.no_grad():
        for place, name in zip(places, ("qkv", "out", "up", "down"), strict=True):
            place.copy_(w[name].T)
        return layer(x, src_mask=hidden)


def without(w: Weights, name: str) -> Weights:
    """Return the weights with zeros as matrix `name`: its half of the block adds nothing."""
    return {**w, name: torch.zeros_like(w[name])}


def head_by_head(w: Weights, heads: int) -> Weights:
    """Return the weights as a block takes them that expects q, k and v of a head side by side."""
    columns = torch.arange(w["qkv"].shape[1]).view(heads, 3, -1).transpose(0, 1).flatten()
    return {**w, "qkv": w["qkv"][:, columns]}


def by_hand(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Return x (n, h) cut into heads, number by number."""
    n, h = x.shape
    out = x.new_empty(heads, n, h // heads)
    for token in range(n):
        for number in range(h):
            out[number // (h // heads), token, number % (h // heads)] = x[token, number]
    return out


@exercise.check(points=3)
def split_heads(student, rng):
    "split: head 0 has each token's first numbers, head 1 the next ones; leading dimensions are batches."
    for n, h, heads in ((2, 6, 3), (4, 4, 2), (3, 5, 1), (5, 8, 4)):
        x = torch.randn(n, h, generator=rng)
        views = {
            "The numbers of a head are next to one another in a token: the heads are mixed here.": x.view(
                n, -1, heads
            ).permute(2, 0, 1),
            "That cuts the tokens, not their numbers: reshape to (n, heads, d), then exchange two dimensions.": x.view(
                heads, n, -1
            ),
            "Exchange tokens and heads: the shape is (heads, n, d).": x.view(n, heads, -1),
            "Cut a token's numbers into (heads, d), not (d, heads): the numbers of a head are next to one another.": (
                x.view(n, -1, heads).transpose(0, 1)
            ),
        }
        expected = by_hand(x, heads)
        views = {say: v for say, v in views.items() if v.shape != expected.shape or not torch.equal(v, expected)}
        checks.close(student.split(x.clone(), heads), expected, name=f"split({n} x {h}, {heads} heads)", mistakes=views)
    x = torch.randn(2, 3, 4, 6, generator=rng)
    expected = torch.stack([by_hand(each, 2) for each in x.flatten(0, 1)]).view(2, 3, 2, 4, 3)
    checks.close(student.split(x, 2), expected, name="split of shape (2, 3, 4, 6), 2 heads")


@exercise.check(points=3)
def merge_heads(student, rng):
    "merge: the inverse of split."
    for n, h, heads in ((2, 6, 3), (4, 4, 2), (3, 5, 1), (5, 8, 4)):
        x = torch.randn(n, h, generator=rng)
        cut = by_hand(x, heads)
        wrong = {
            "Exchange heads and tokens before the last two dimensions become one.": cut.reshape(n, h),
            "Exchange heads and tokens first: of (n, heads, d) the last two become one.": cut.flatten(-2),
            "Put the heads one after another; do not interleave their numbers.": cut.permute(1, 2, 0).reshape(n, h),
        }
        wrong = {say: value for say, value in wrong.items() if not torch.equal(value, x)}
        checks.close(student.merge(cut), x, name=f"merge of {heads} heads, {n} x {h}", mistakes=wrong)
    x = torch.randn(2, 3, 4, 6, generator=rng)
    cut = torch.stack([by_hand(each, 3) for each in x.flatten(0, 1)]).view(2, 3, 3, 4, 2)
    checks.close(student.merge(cut), x, name="merge of shape (2, 3, 3, 4, 2)")


def without_first_norm(w: Weights, x: torch.Tensor, heads: int) -> torch.Tensor:
    """Return x plus the attention of x itself: the first half of a block without its norm."""
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(-2, -3) for part in (x @ w["qkv"]).chunk(3, dim=-1))
    found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return x + found.transpose(-2, -3).flatten(-2) @ w["out"]


def is_block(student, w: Weights, heads: int, x: torch.Tensor, setting: str) -> None:
    """The student's block with the weights w makes of x (b, n, h) what torch's does."""
    expected = torchs(w, x, heads)
    attended = torchs(without(w, "down"), x, heads)  # after the first residual
    think = lambda y: torchs(without(w, "out"), y, 1) - y  # noqa: E731 (the second half, without its residual)
    known = {
        "The attention of a block is causal: hide the future.": torchs(w, x, heads, causal=False),
        "The first residual is missing: add x to what `out` returns.": attended - x + think(attended - x),
        "The second residual is missing: add its input to what `down` returns.": think(attended),
        "Norm the inputs of the attention and of `up`, but not the residual.": torchs(w, x, heads, norm_first=False),
        "The columns of qkv are all queries, then all keys, then all values, and each of them is split into heads.": (
            torchs(head_by_head(w, heads), x, heads)
        ),
        "Between `up` and `down` comes ReLU.": torchs(w, x, heads, activation="gelu"),
        "Both layers get x here: the second one must get x plus the first one's output.": attended + think(x),
        "ReLU between `up` and `down` is missing.": attended
        + nn.functional.layer_norm(attended, attended.shape[-1:]) @ w["up"] @ w["down"],
        "The first norm is missing: the attention gets norm(x).": (raw := without_first_norm(w, x, heads)) + think(raw),
        "The second norm is missing: `up` gets the norm of its input.": attended
        + torch.relu(attended @ w["up"]) @ w["down"],
        "You use one head with all numbers: split it into heads.": torchs(w, x, 1),
    }
    known = {say: v for say, v in known.items() if not torch.allclose(v, expected, rtol=1e-9)}
    mine, given = x.clone(), {name: matrix.clone() for name, matrix in w.items()}
    got = student.transformer_block(mine, given, heads)
    checks.close(got, expected, name=f"{setting}: transformer_block(x, w, heads={heads})", mistakes=known)
    checks.unchanged(mine, x, name="x")
    checks.unchanged(given, w, name="w")


@exercise.check(points=3)
def one_head(student, rng):
    "transformer_block: norms, causal attention, ReLU and both residuals, with one head."
    for n, h in ((3, 4), (5, 6)):
        is_block(student, drawn(h, rng), 1, torch.randn(1, n, h, generator=rng).double(), f"{n} tokens of {h}")


@exercise.check(points=4, needs="one_head")
def many_heads(student, rng):
    "transformer_block: several heads, each with its own part of the queries, keys and values."
    for n, h, heads in ((3, 4, 2), (4, 6, 3), (5, 8, 4)):
        x = torch.randn(1, n, h, generator=rng).double()
        is_block(student, drawn(h, rng), heads, x, f"{n} tokens of {h}")


@exercise.check(points=2, needs="many_heads")
def batches(student, rng):
    "transformer_block: a batch of sequences, batches of batches, and one sequence alone."
    w = drawn(6, rng)
    x = torch.randn(3, 4, 6, generator=rng).double()
    is_block(student, w, 2, x, "3 sequences")
    got = student.transformer_block(x[0].clone(), w, 3)
    checks.close(got, torchs(w, x[:1], 3)[0], name="transformer_block of one sequence (4, 6)")
    x = torch.randn(2, 3, 4, 6, generator=rng).double()
    expected = torchs(w, x.flatten(0, 1), 3).view(x.shape)
    checks.close(student.transformer_block(x, w, 3), expected, name="transformer_block of shape (2, 3, 4, 6)")
