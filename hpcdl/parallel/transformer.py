"""A decoder of `hpcdl.nn.transformer`, cut for tensor parallelism and still a list of layers, to be cut into stages."""

from copy import deepcopy
from typing import cast

from torch import nn

from hpcdl.comm import Communicator
from hpcdl.parallel.tensor import ColumnLinear, TransformerBlock, VocabularyEmbedding


def split_transformer(dense: nn.Sequential, comm: Communicator) -> nn.Sequential:
    """Return this rank's part of every layer: tokens, (batch, tokens), to logits of its share of the vocabulary.

    Their loss: `hpcdl.parallel.tensor.cross_entropy`.
    """
    embedding, *blocks, output = (cast(nn.Sequential, layer) for layer in dense)
    (words, positions), (norm, linear) = embedding, output
    return nn.Sequential(
        nn.Sequential(VocabularyEmbedding.of(cast(nn.Embedding, words), comm), deepcopy(positions)),
        *(TransformerBlock.of(cast(nn.TransformerEncoderLayer, block), comm) for block in blocks),
        nn.Sequential(deepcopy(norm), ColumnLinear.of(cast(nn.Linear, linear), comm)),
    )
