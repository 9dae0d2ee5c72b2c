"""Model parallelism: the network itself is split, and each rank holds a part of it.

| module | what is split | who communicates |
|---|---|---|
| `tensor` | a layer's matrix, its heads, filters or words | all ranks, in each half of a block |
| `pipeline` | the layers into stages, the batch into microbatches | neighbouring stages, for each microbatch |
| `sequence` | the tokens of a sequence | the ring, or all-to-all, in each attention |
| `experts` | parallel layers; each token uses a few | all-to-all, there and back |
| `mesh` | all of that, and the data: groups of a hybrid | |

`schedules` says which stage computes which microbatch when, as data that can be timed (`hpcdl.cost.pipeline`), drawn
and run; `shares` says which rank has which part of a split tensor; `gradients` sums gradients that several ranks have
parts of, and clips them; `transformer` splits a whole decoder.

The contract, kept by all:

- A split tensor becomes shares in the order of the ranks, with sizes that differ by at most one; no size has to divide.
- The result, and the gradient of every weight, equal the dense network's on one rank, except for the order of sums.
- Every rank calls the same functions in the same order. A rank sends what a docstring says and nothing else, using only
  messages, so any communicator works: a `Group` of a mesh, simulated ranks, MPI.
- Layers are made from dense layers that are equal on every rank (`ColumnLinear.of(linear, comm)`), and keep a copy of
  only their share. A parameter that several ranks have whole gets the same gradient on each, or a part of it if a
  docstring says so: then call `sum_gradients(params, comm)` before the optimizer's step.
- A norm of one rank's gradients is refused where other ranks have other weights: `clip_grad_norm_(params, max_norm,
  comm)` clips by the norm over all ranks.
- Impossible requests raise ValueError before the first message, on every rank that can know it.
- A split layer's weight is guarded outside its layer: sums over its elements are right as terms of a loss, other uses
  are refused. `join(weight, comm, length, dim)` is the whole weight, `local_share(weight)` a plain share.
- Layers have no random masks, since ranks would have to agree on them; `tensor.dropout` masks a share like the whole.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.parallel.experts import Experts, Routing
    from hpcdl.parallel.gradients import clip_grad_norm_, sum_gradients
    from hpcdl.parallel.mesh import Mesh
    from hpcdl.parallel.pipeline.cut import cut_batch, cut_layers
    from hpcdl.parallel.pipeline.layers import Chunk, Layers
    from hpcdl.parallel.pipeline.stage import StageRun, run_stage
    from hpcdl.parallel.schedules import SCHEDULES
    from hpcdl.parallel.sequence.fast_ring import fast_ring_attention
    from hpcdl.parallel.sequence.ring import ring_attention
    from hpcdl.parallel.sequence.ulysses import ulysses_attention
    from hpcdl.parallel.shares import share
    from hpcdl.parallel.tensor.attention import HeadAttention
    from hpcdl.parallel.tensor.block import TransformerBlock
    from hpcdl.parallel.tensor.convolution import ChannelConv2d, FilterConv2d
    from hpcdl.parallel.tensor.linear import ColumnLinear, RowLinear
    from hpcdl.parallel.tensor.vocabulary import VocabularyEmbedding
    from hpcdl.parallel.transformer import split_transformer

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "ColumnLinear": "tensor.linear",
        "RowLinear": "tensor.linear",
        "FilterConv2d": "tensor.convolution",
        "ChannelConv2d": "tensor.convolution",
        "HeadAttention": "tensor.attention",
        "TransformerBlock": "tensor.block",
        "VocabularyEmbedding": "tensor.vocabulary",
        "run_stage": "pipeline.stage",
        "StageRun": "pipeline.stage",
        "Chunk": "pipeline.layers",
        "Layers": "pipeline.layers",
        "cut_layers": "pipeline.cut",
        "cut_batch": "pipeline.cut",
        "SCHEDULES": "schedules",
        "ring_attention": "sequence.ring",
        "fast_ring_attention": "sequence.fast_ring",
        "ulysses_attention": "sequence.ulysses",
        "Experts": "experts",
        "Routing": "experts",
        "Mesh": "mesh",
        "split_transformer": "transformer",
        "share": "shares",
        "sum_gradients": "gradients",
        "clip_grad_norm_": "gradients",
    },
)
