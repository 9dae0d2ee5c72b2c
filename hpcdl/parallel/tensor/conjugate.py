"""What communicates in tensor parallelism: six functions, each with a backward pass that communicates the other way.

| function | forward | backward |
|---|---|---|
| `copy` | x as it is | all-reduce |
| `reduce` | all-reduce | as it is |
| `gather` | all-gather | reduce-scatter |
| `reduce_scatter` | reduce-scatter | all-gather |
| `split` | this rank's share | all-gather |
| `join` | all-gather | this rank's share |

The first two are f and g of Shoeybi et al. 2019, "Megatron-LM: training multi-billion parameter language models using
model parallelism"; the next two their counterparts where the sequence is cut between the layers (Korthikanti et al.
2022, "Reducing activation recomputation in large transformer models"). `split` and `join` stand where a tensor that
all ranks have alike becomes shares, and back.

Every rank calls them in the same order. What is gathered or scattered is cut along `dim` into `shares`.
"""

from typing import Any

import torch

from hpcdl.collectives import fast_ring_all_reduce
from hpcdl.comm import Communicator
from hpcdl.parallel.shares import share, shares
from hpcdl.parallel.tensor.weights import IN_TRANSFORMS, SUMMED, SumOfShares, local_share
from hpcdl.sharding.pieces import untraced


def copy(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return `x`, for ranks that each compute a part of what follows: its gradient is the sum over all ranks."""
    return _called(_Copy, x, comm)


def reduce(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return the sum of all ranks' `x`."""
    return _called(_Reduce, x, comm)


def gather(x: torch.Tensor, comm: Communicator, length: int, dim: int = -2) -> torch.Tensor:
    """All ranks' `x`, one after the other, `length` along `dim`; what follows is different on each rank.

    Raises ValueError where `x` is not this rank's share of `length`.
    """
    return _called(_Gather, local_share(x), comm, dim, length)


def reduce_scatter(x: torch.Tensor, comm: Communicator, dim: int = -2) -> torch.Tensor:
    """Return this rank's share of the sum of all ranks' `x`."""
    return _called(_ReduceScatter, x, comm, dim)


def split(x: torch.Tensor, comm: Communicator, dim: int = -2) -> torch.Tensor:
    """Return this rank's share of `x`, which all ranks have alike."""
    return _called(_Split, x, comm, dim)


def join(x: torch.Tensor, comm: Communicator, length: int, dim: int = -2) -> torch.Tensor:
    """All ranks' `x`, one after the other, `length` along `dim`; what follows is the same on each rank.

    Raises ValueError where `x` is not this rank's share of `length`.
    """
    return _called(_Join, local_share(x), comm, dim, length)


def _called(function: type[torch.autograd.Function], x: torch.Tensor, *options: Any) -> torch.Tensor:
    """Return `function.apply(x, *options)`; RuntimeError within torch.func, which would call it in another way."""
    if isinstance(x, SumOfShares):
        raise RuntimeError(SUMMED)
    try:
        return function.apply(x, *options)
    except RuntimeError as error:  # NotImplementedError, too
        if not any(said in str(error) for said in ("functorch", "forward mode AD")):
            raise
        raise RuntimeError(IN_TRANSFORMS) from error


untraced(_called)  # torch.compile leaves messages to Python


# -- forward and backward ---------------------------------------------------------------------------------------------


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        return _Reduce.apply(dy, ctx.comm), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return _sum(x, comm)

    @staticmethod
    def backward(ctx, dy):
        return _Copy.apply(dy, ctx.comm), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, dim, length):
        ctx.comm, ctx.dim = comm, dim
        return _all_gather(x, comm, dim, length)

    @staticmethod
    def backward(ctx, dy):
        return _ReduceScatter.apply(dy, ctx.comm, ctx.dim), None, None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, dim):
        ctx.comm, ctx.dim, ctx.length = comm, dim, x.shape[dim]
        return _scatter_sums(x, comm, dim)

    @staticmethod
    def backward(ctx, dy):
        return _Gather.apply(dy, ctx.comm, ctx.dim, ctx.length), None, None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, dim):
        ctx.comm, ctx.dim, ctx.length = comm, dim, x.shape[dim]
        return share(x, comm, dim)

    @staticmethod
    def backward(ctx, dy):
        return _Join.apply(dy, ctx.comm, ctx.dim, ctx.length), None, None


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, dim, length):
        ctx.comm, ctx.dim = comm, dim
        return _all_gather(x, comm, dim, length).contiguous()  # as a dense layer's: users take views of it

    @staticmethod
    def backward(ctx, dy):
        return _Split.apply(dy, ctx.comm, ctx.dim), None, None, None


# -- collectives on new tensors ---------------------------------------------------------------------------------------


def _sum(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return the sum of all ranks' `x` in a new tensor."""
    x = x.detach().clone(memory_format=torch.contiguous_format)
    fast_ring_all_reduce(x, comm)
    return x


def _all_gather(x: torch.Tensor, comm: Communicator, dim: int, length: int) -> torch.Tensor:
    """Return every rank's share round the ring; as `hpcdl.collectives.all_gather`, which would cut within rows."""
    p, rank, mine = comm.size, comm.rank, x.detach().movedim(dim, 0)
    if len(mine) != shares(length, p)[rank]:
        raise ValueError(
            f"rank {rank}: x has {len(mine)} along dimension {dim}; of {length} on {p} ranks its share is "
            f"{shares(length, p)[rank]}: cut with hpcdl.parallel.tensor.split"
        )
    whole = mine.new_empty(length, *mine.shape[1:])
    pieces = whole.tensor_split(p)
    pieces[rank].copy_(mine)
    for step in range(p - 1):
        given, taken = pieces[(rank - step) % p], pieces[(rank - step - 1) % p]
        comm.sendrecv(given, (rank + 1) % p, taken, (rank - 1) % p)
    return _owning(whole.movedim(0, dim))


def _scatter_sums(x: torch.Tensor, comm: Communicator, dim: int) -> torch.Tensor:
    """Sums grow round the ring; as `hpcdl.collectives.reduce_scatter`, which would cut within rows."""
    p, rank = comm.size, comm.rank
    pieces = x.detach().movedim(dim, 0).clone(memory_format=torch.contiguous_format).tensor_split(p)
    incoming = torch.empty_like(pieces[0])
    for step in range(1, p):
        given, target = pieces[(rank - step) % p], pieces[(rank - step - 1) % p]
        comm.sendrecv_add(given, (rank + 1) % p, target, (rank - 1) % p, incoming[: len(target)])
    return _owning(pieces[rank].clone().movedim(0, dim).contiguous())


def _owning(x: torch.Tensor) -> torch.Tensor:
    """`x` as a tensor that is no view, so that a layer after it may work in place."""
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())
