"""Heads, and a transformer block. Oracle: torch's `TransformerEncoderLayer` with the same weights, in float64."""

import torch
from torch import nn

from autograder import checks
from autograder.authoring import Exercise
from autograder.exercises.ready_made import ATTENTION, TRANSFORMERS

exercise = Exercise(
    "heads",
    points=15,
    minutes=14,
    functions=("split", "merge", "transformer_block"),
    forbid=(*ATTENTION, *TRANSFORMERS),
    instead="Put it together from split, your attention, merge and matrix products.",
    uses=("attention",),
)


class Weights(dict):
    """The four matrices of a block with h numbers for each token, and torch's layer with the same ones."""

    def __init__(self, h: int, rng):
        shapes = {"qkv": (h, 3 * h), "out": (h, h), "up": (h, 4 * h), "down": (4 * h, h)}
        super().__init__({name: torch.randn(*shape, generator=rng).double() / 2 for name, shape in shapes.items()})
        self.h = h

    def layer(self, heads: int, **options) -> nn.Module:
        """Return torch's layer; `options` are those of `TransformerEncoderLayer`."""
        options = {"norm_first": True, **options}
        layer = nn.TransformerEncoderLayer(self.h, heads, 4 * self.h, 0.0, batch_first=True, bias=False, **options)
        layer = layer.double()
        attention = layer.self_attn
        places = (attention.in_proj_weight, attention.out_proj.weight, layer.linear1.weight, layer.linear2.weight)
        with torch.no_grad():
            for place, name in zip(places, ("qkv", "out", "up", "down"), strict=True):
                place.copy_(self[name].T)
        return layer

    def expected(self, x: torch.Tensor, heads: int, causal: bool = True, **options) -> torch.Tensor:
        """Return what torch's layer makes of x (b, n, h)."""
        n = x.shape[1]
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
        with torch.no_grad():
            return self.layer(heads, **options)(x, src_mask=hidden)

    def without(self, name: str) -> "Weights":
        """Return the weights with zeros as matrix `name`: its branch adds nothing."""
        other = Weights.__new__(Weights)
        dict.__init__(other, {**self, name: torch.zeros_like(self[name])})
        other.h = self.h
        return other

    def mixed(self, heads: int) -> "Weights":
        """Return weights for which q, k, v of each head stand together: what one slice for each head gives."""
        columns = torch.arange(3 * self.h).view(heads, 3, -1).transpose(0, 1).flatten()
        other = self.without("qkv")
        dict.__setitem__(other, "qkv", self["qkv"][:, columns])
        return other

    def clones(self) -> dict[str, torch.Tensor]:
        return {name: matrix.clone() for name, matrix in self.items()}


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
            "The heads stand one after another; their numbers do not take turns.": cut.permute(1, 2, 0).reshape(n, h),
        }
        wrong = {say: value for say, value in wrong.items() if not torch.equal(value, x)}
        checks.close(student.merge(cut), x, name=f"merge of {heads} heads, {n} x {h}", mistakes=wrong)
    x = torch.randn(2, 3, 4, 6, generator=rng)
    cut = torch.stack([by_hand(each, 3) for each in x.flatten(0, 1)]).view(2, 3, 3, 4, 2)
    checks.close(student.merge(cut), x, name="merge of shape (2, 3, 3, 4, 2)")


def is_block(student, w: Weights, heads: int, x: torch.Tensor, setting: str) -> None:
    """x: (b, n, h)."""
    expected = w.expected(x, heads)
    unmasked = w.expected(x, heads, causal=False)
    with torch.no_grad():
        attended = w.without("down").expected(x, heads)  # x after the first residual
        second = expected - attended
        both = w.expected(x, heads, norm_first=False)
        gelu = w.expected(x, heads, activation="gelu")
    known = {
        "The attention of a block is causal: the future is not hidden here.": unmasked,
        "The first residual is missing: add x to what `out` returns.": second_alone(w, attended - x),
        "The second residual is missing: add its input to what `down` returns.": second,
        "The norm comes before the attention and before `up`, and what is added to the residual has none.": both,
        "The columns of qkv are all queries, then all keys, then all values, and each of them is split into heads.": (
            w.mixed(heads).expected(x, heads)
        ),
        "Between `up` and `down` comes ReLU.": gelu,
        "Both layers get x here: the second one gets the sum of x and the first.": attended + second_alone(w, x) - x,
        "ReLU between `up` and `down` is missing.": attended
        + nn.functional.layer_norm(attended, attended.shape[-1:]) @ w["up"] @ w["down"],
        "The heads are not used: that is one head with all numbers.": w.expected(x, 1),
    }
    known = {say: v for say, v in known.items() if not torch.allclose(v, expected, rtol=1e-9)}
    mine, given = x.clone(), w.clones()
    got = student.transformer_block(mine, given, heads)
    checks.close(got, expected, name=f"{setting}: transformer_block(x, w, heads={heads})", mistakes=known)
    checks.unchanged(mine, x, name="x")
    checks.unchanged(given, dict(w.clones()), name="w")


def second_alone(w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return what the second half of the block makes of x."""
    return w.without("out").expected(x, 1)


@exercise.check(points=3)
def one_head(student, rng):
    "transformer_block: norms, causal attention, ReLU and both residuals, with one head."
    for n, h in ((3, 4), (5, 6)):
        is_block(student, Weights(h, rng), 1, torch.randn(1, n, h, generator=rng).double(), f"{n} tokens of {h}")


@exercise.check(points=4, needs="one_head")
def many_heads(student, rng):
    "transformer_block: several heads, each with its own part of the queries, keys and values."
    for n, h, heads in ((3, 4, 2), (4, 6, 3), (5, 8, 4)):
        x = torch.randn(1, n, h, generator=rng).double()
        is_block(student, Weights(h, rng), heads, x, f"{n} tokens of {h}")


@exercise.check(points=2, needs="many_heads")
def batches(student, rng):
    "transformer_block: a batch of sequences, and one sequence alone."
    w = Weights(6, rng)
    x = torch.randn(3, 4, 6, generator=rng).double()
    is_block(student, w, 2, x, "3 sequences")
    got = student.transformer_block(x[0].clone(), w.clones(), 3)
    checks.close(got, w.expected(x[:1], 3)[0], name="transformer_block of one sequence (4, 6)")
