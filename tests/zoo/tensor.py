"""The zoo in tensor parallelism: each rank has a part of every layer that can be split, and the whole batch."""

import re
from collections.abc import Callable

import torch
from torch import nn
from zoo.entries_tensor import Head, Mixture
from zoo.registry import Entry, Kit, Weights, plain, wrapper

from hpcdl.parallel import Experts, clip_grad_norm_, share, sum_gradients
from hpcdl.parallel.tensor import (
    ChannelConv2d,
    ColumnLinear,
    FilterConv2d,
    HeadAttention,
    RowLinear,
    TransformerBlock,
    VocabularyEmbedding,
    cross_entropy,
    join,
    split,
)


class Whole(nn.Module):
    """A split layer that takes and returns whole tensors: `call(layer, *inputs)`, and the axes of its parts."""

    def __init__(self, layer: nn.Module, call: Callable, axes: dict[str, Callable[[torch.Tensor], torch.Tensor]]):
        super().__init__()
        self.layer, self._call, self._axes = layer, call, axes

    def forward(self, *args, **kwargs):
        return self._call(self.layer, *args, **kwargs)

    @property
    def weight(self) -> torch.Tensor:
        """This rank's share, for loops that reach into a layer."""
        return self.layer.weight

    @property
    def bias(self) -> torch.Tensor:
        return self.layer.bias

    def whole(self) -> Weights:
        """The dense layer's parameters, by its names."""
        return {name: join_() for name, join_ in self._axes.items()}


def joined(comm, param: torch.Tensor | None, length: int, dim: int) -> Callable[[], torch.Tensor | None]:
    return lambda: None if param is None else join(param.detach(), comm, length, dim)


def kept(param: torch.Tensor | None) -> Callable[[], torch.Tensor | None]:
    return lambda: None if param is None else param.detach().clone()


def linear(dense: nn.Linear, comm, rows: bool) -> Whole:
    if rows:
        layer = RowLinear.of(dense, comm)
        axes = {"weight": joined(comm, layer.weight, dense.in_features, 1), "bias": kept(layer.bias)}
        return Whole(layer, lambda layer, x: layer(split(x, comm, -1)), axes)
    layer, n = ColumnLinear.of(dense, comm), dense.out_features
    axes = {name: joined(comm, getattr(layer, name), n, 0) for name in ("weight", "bias")}
    return Whole(layer, lambda layer, x: join(layer(x), comm, n, -1), axes)


def embedding(dense: nn.Embedding, comm, rows: bool) -> Whole:
    layer = VocabularyEmbedding.of(dense, comm)
    return Whole(layer, lambda layer, x: layer(x), {"weight": joined(comm, layer.weight, dense.num_embeddings, 0)})


def convolution(dense: nn.Conv2d, comm, rows: bool) -> Whole:
    if rows and dense.in_channels >= comm.size:
        layer = ChannelConv2d.of(dense, comm)
        axes = {"weight": joined(comm, layer.weight, dense.in_channels, 1), "bias": kept(layer.bias)}
        return Whole(layer, lambda layer, x: layer(split(x, comm, 1)), axes)
    layer, n = FilterConv2d.of(dense, comm), dense.out_channels
    axes = {name: joined(comm, getattr(layer, name), n, 0) for name in ("weight", "bias")}
    return Whole(layer, lambda layer, x: join(layer(x), comm, n, 1), axes)


def of_heads(layer: HeadAttention, dense: nn.MultiheadAttention, comm, prefix: str = "") -> dict:
    """The parameters of attention from those of all ranks' heads."""
    heads, width = dense.num_heads, dense.head_dim

    def inputs(param):
        cut = param.detach().view(3, -1, width, *param.shape[1:])
        return lambda: join(cut, comm, heads, 1).flatten(0, 2)

    def outputs():
        return join(layer.out.weight.detach().unflatten(1, (-1, width)), comm, heads, 1).flatten(1)

    found = {"in_proj_weight": inputs(layer.qkv.weight), "out_proj.weight": outputs}
    if layer.qkv.bias is not None:
        found |= {"in_proj_bias": inputs(layer.qkv.bias), "out_proj.bias": kept(layer.out.bias)}
    return {prefix + name: value for name, value in found.items()}


def attention(dense: nn.MultiheadAttention, comm, rows: bool) -> Whole:
    layer = HeadAttention.of(dense, comm)

    def call(layer, q, k, v, key_padding_mask=None, need_weights=True, attn_mask=None, **_):
        assert q is k is v, "self-attention"
        return layer(q, attn_mask, key_padding_mask), None

    return Whole(layer, call, of_heads(layer, dense, comm))


def block(dense: nn.TransformerEncoderLayer, comm, rows: bool) -> Whole:
    layer = TransformerBlock.of(dense, comm, causal=False)
    axes = of_heads(layer.attention, dense.self_attn, comm, "self_attn.")
    for name in ("weight", "bias"):
        param = getattr(layer.linear1, name)
        axes[f"linear1.{name}"] = joined(comm, param, dense.linear1.out_features, 0)
        axes |= {f"{norm}.{name}": kept(getattr(getattr(layer, norm), name)) for norm in ("norm1", "norm2")}
    axes["linear2.weight"] = joined(comm, layer.linear2.weight, dense.linear2.in_features, 1)
    axes["linear2.bias"] = kept(layer.linear2.bias)
    return Whole(
        layer,
        lambda layer, x, src_mask=None, src_key_padding_mask=None, **_: layer(x, src_mask, src_key_padding_mask),
        axes,
    )


def head(dense: Head, comm, rows: bool) -> Whole:
    """Logits that stay on their ranks, and the loss of a vocabulary in shares."""
    layer, n = ColumnLinear.of(dense.linear, comm), dense.linear.out_features
    axes = {f"linear.{name}": joined(comm, getattr(layer, name), n, 0) for name in ("weight", "bias")}
    return Whole(layer, lambda layer, x, y: cross_entropy(layer(x), y, n, comm, **dense.options), axes)


def mixture(dense: Mixture, comm, rows: bool) -> Whole:
    """Some experts on each rank, and on each a part of the tokens."""
    mine = [e for e in range(len(dense.experts)) if e in share(torch.arange(len(dense.experts)), comm)]
    layer = Experts(
        dense.gate, [dense.experts[e] for e in mine], comm, dense.k, float("inf"), renormalize=dense.renormalize
    )
    axes = {}
    for name in ("weight", "bias"):
        axes[f"gate.{name}"] = kept(getattr(dense.gate, name))
        for e, expert in enumerate(dense.experts):
            axes[f"experts.{e}.{name}"] = owned(comm, getattr(expert, name), e in mine)
    return Whole(layer, lambda layer, x: join(layer(split(x, comm, 0))[0], comm, len(x), 0), axes)


def owned(comm, param: torch.Tensor, mine: bool) -> Callable[[], torch.Tensor]:
    from hpcdl.collectives import naive_all_reduce

    def found():
        x = param.detach().clone() if mine else torch.zeros_like(param)
        naive_all_reduce(x, comm)
        return x

    return found


SPLITS = {
    Head: head,
    Mixture: mixture,
    nn.Linear: linear,
    nn.Embedding: embedding,
    nn.Conv2d: convolution,
    nn.MultiheadAttention: attention,
    nn.TransformerEncoderLayer: block,
}


@wrapper("tensor parallel")
class TensorParallel(Kit):
    """Columns and filters on one rank and two, rows and channels on three; heads, words and experts on any."""

    alone = True
    # A bias that is whole where its layer is cut by rows; parameters kept or named as those of dense layers; torch's
    # encoder looks into its layers; and a layer that is lazy draws its weights when it is called.
    elsewhere = frozenset(
        {
            "bias used outside its layer",
            "parameters in a list of its own",
            "named_parameters() used in forward",
            "functional_call inside",
            "lazy linear",
            "Transformer, norm first, GELU, no bias",
            # A tensor-parallel model has nothing to synchronize, no replicas, and its loss is the same on every rank.
            "no synchronize",
            "learning rate from one rank's loss",
            "rank 0 alone loads a state",
            "rank 0 alone changes a bias",
            "half() of the inner module",
            "wrapped twice",
            "wrapped inside",
            "layer shared by two models",
            "forward that failed and is repeated",  # on some ranks only
            "rank 0 alone does not step",
            "SyncBatchNorm",  # torch's own needs GPUs where torch.distributed is set up
            "gradient noise",  # drawn for shares, other numbers
            "evolution strategies",
            "parameter made in forward",
            "names changed by a state_dict hook",
            "attention with its weights",
            "weights copied from a twin",
            "L1 penalty on one layer",
            "__slots__",  # keeps a dense layer in a list
            "parameter assigned in forward",
            "nested tensor",
            "inducing points",  # attends to others than itself
        }
    )
    # The loop changes a dense layer, which the split one has taken the place of.
    of_dense = re.compile(
        r"after wrapping$|before the optimizer is made$|load_state_dict\(|inner module loads|in training$"
    )
    of_layers = re.compile(
        "compiled|clamps|doubles|normalizes|keeps one row|hook|layer added|to\\(float|data replaced|memory|channels"
    )

    @classmethod
    def trains(cls, entry: Entry) -> bool:
        from zoo.outcomes import float64

        dense = entry.loop is not plain and cls.of_dense.search(entry.name) and not cls.of_layers.search(entry.name)
        if entry.name in cls.elsewhere or dense:
            return False
        with float64():
            return any(type(layer) in SPLITS for layer in entry.build().modules())

    def __init__(self, comm, entry):
        super().__init__(comm, entry)
        self._gates, self._wrapped = [], {}

    def share(self, batch):
        return batch

    def wrap(self, module, **options):
        """Replace the layers that can be split, each once however many places it has."""
        self._names, self._tied = list(module.state_dict()), _tied(module)
        found: dict[nn.Module, nn.Module] = {}
        self._splits: dict[str, Whole] = {}
        if type(module) in SPLITS:
            module = self._replace("", module, found)
        else:
            self._walk(module, "", found)
        self._wrapped[module] = self._names, self._splits
        return module

    def _walk(self, module, prefix, found):
        for name, child in list(module._modules.items()):
            whole = isinstance(module, nn.TransformerDecoderLayer) and name == "multihead_attn"
            if isinstance(child, nn.Conv2d):
                whole = child.groups == 1 and max(child.in_channels, child.out_channels) < self.size
            if type(child) in SPLITS and not whole:
                module._modules[name] = self._replace(f"{prefix}{name}", child, found)
            elif child is not None:
                self._walk(child, f"{prefix}{name}.", found)

    def _replace(self, path, child, found):
        if child not in found:
            rows = self.size == 3 and not (_ids(child) & self._tied)
            found[child] = SPLITS[type(child)](child, self.comm, rows)
        if isinstance(child, Mixture):
            self._gates.append(child.gate)
        self._splits[path] = found[child]
        return found[child]

    def clip(self, model, max_norm):
        return clip_grad_norm_(model.parameters(), max_norm, self.comm)

    def synchronize(self, *models):
        for gate in self._gates:
            sum_gradients(gate.parameters(), self.comm)

    def weights(self, model) -> Weights:
        found, (names, splits) = {}, self._wrapped[model]
        for path, layer in splits.items():
            found |= {f"{path}.{name}".lstrip("."): x for name, x in layer.whole().items() if x is not None}
        own = {name: x.detach().clone() for name, x in model.state_dict().items() if isinstance(x, torch.Tensor)}
        return {name: found.get(name, own.get(name)) for name in names if name in found or name in own}


def _ids(module: nn.Module) -> set[int]:
    return {id(param) for param in module.parameters()}


def _tied(module: nn.Module) -> set[int]:
    """The parameters in several places."""
    seen, twice = set(), set()
    for _, param in module.named_parameters(remove_duplicate=False):
        (twice if id(param) in seen else seen).add(id(param))
    return twice
