"""Tensor parallelism: one layer's matrix is split, so each rank holds and multiplies a part of it.

Begin with `plain`: a split transformer block in one sitting.

`conjugate` has the communication; `linear`, `convolution`, `attention`, `block` and `vocabulary` have the layers that
use it. Each layer is made from a dense one that every rank has (`ColumnLinear.of(linear, comm)`), and shares differ by
one if sizes do not divide.

Ranks must draw the same random numbers for what each has whole, so seed them alike. For a share they then draw other
numbers than one process: between a column and a row layer take `dropout` instead of torch's, for noise draw the whole
and take `hpcdl.parallel.share` of it, and initialize weights before you split their layers.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.parallel.tensor.attention import HeadAttention
    from hpcdl.parallel.tensor.block import TransformerBlock
    from hpcdl.parallel.tensor.conjugate import copy, gather, join, reduce, reduce_scatter, split
    from hpcdl.parallel.tensor.convolution import ChannelConv2d, FilterConv2d
    from hpcdl.parallel.tensor.linear import ColumnLinear, RowLinear
    from hpcdl.parallel.tensor.masks import dropout
    from hpcdl.parallel.tensor.vocabulary import VocabularyEmbedding, cross_entropy
    from hpcdl.parallel.tensor.weights import local_share

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "copy": "conjugate",
        "reduce": "conjugate",
        "gather": "conjugate",
        "reduce_scatter": "conjugate",
        "split": "conjugate",
        "join": "conjugate",
        "ColumnLinear": "linear",
        "RowLinear": "linear",
        "FilterConv2d": "convolution",
        "ChannelConv2d": "convolution",
        "dropout": "masks",
        "HeadAttention": "attention",
        "TransformerBlock": "block",
        "VocabularyEmbedding": "vocabulary",
        "cross_entropy": "vocabulary",
        "local_share": "weights",
    },
)
