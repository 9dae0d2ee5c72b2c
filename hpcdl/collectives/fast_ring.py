"""The ring all-reduce by the machine's fastest operations: bit-identical to `ring_all_reduce`, in less time.

- `sendrecv_add` adds a weighted chunk in place, in one pass over memory.
- On two ranks the neighbour that adds also needs to return the sum: it goes back the same way (`back`).
- If the machine has a best message length (`comm.segment`), longer chunks are split. All first pieces travel the whole
  ring before the second pieces: each piece stays in the processor's cache from its first message to its last. Every
  element is still summed in the order of its chunk.
- Tensors from `comm.empty` are not split: neighbours read each chunk once, directly from the sender's memory, so a
  cache would not help. Each rank knows this only for its own tensor; ranks agree on it in log2 p short messages, and
  only for tensors that would be split.
"""

from collections.abc import Sequence

import torch

from hpcdl.collectives.chunks import chunks, weigh
from hpcdl.collectives.hierarchical import hierarchical_all_reduce
from hpcdl.collectives.recursive_doubling import recursive_doubling_all_reduce
from hpcdl.comm import Communicator


def fast_ring_all_reduce(x: torch.Tensor, comm: Communicator, weight: float = 1.0) -> None:
    """Sum `weight * x` over the ranks in place, like `ring_all_reduce`: the same bytes to the same neighbours."""
    comm.check_tensor("ring_all_reduce", "x", x)
    pieces_of_rounds = rounds(x, comm)
    scratch = torch.empty_like(pieces_of_rounds[0][0])
    for pieces in pieces_of_rounds:
        add_round(pieces, scratch, comm, weight, back=comm.size == 2)
        if comm.size > 2:
            _pass_round(pieces, comm)


def fast_hierarchical_all_reduce(
    x: torch.Tensor, comm: Communicator, weight: float = 1.0, *, per_node: int = 4
) -> None:
    """Sum `weight * x` over the ranks in place, like `hierarchical_all_reduce`, with the fast ring between nodes."""
    hierarchical_all_reduce(x, comm, weight, per_node=per_node, between=fast_ring_all_reduce)


def rounds(x: torch.Tensor, comm: Communicator) -> list[tuple[torch.Tensor, ...]]:
    """Yield, for each trip around the ring, one piece of every rank's chunk."""
    whole = chunks(x, comm.size)
    count = -(-whole[0].nbytes // comm.segment) if comm.segment else 1
    if count <= 1 or _all_lend(x, comm):
        return [whole]
    return list(zip(*(chunk.tensor_split(count) for chunk in whole), strict=True))


def _all_lend(x: torch.Tensor, comm: Communicator) -> bool:
    mine = comm.lends(x)
    if mine is None:
        return False
    lending = torch.tensor([int(mine)])
    recursive_doubling_all_reduce(lending, comm)
    return lending.item() == comm.size


def add_round(
    pieces: Sequence[torch.Tensor], scratch: torch.Tensor, comm: Communicator, weight: float, back: bool = False
) -> None:
    """Sum `weight` * piece r over the ranks on rank r, for all r; with `back`, for two ranks, on both.

    Messages may arrive in `scratch`, which is as long as any piece.
    """
    p, rank = comm.size, comm.rank
    if not back:  # otherwise the machine also weights what it sends
        weigh(pieces[rank - 1], weight)
    for step in range(1, p):
        given, target = pieces[(rank - step) % p], pieces[(rank - step - 1) % p]
        arriving = scratch if scratch.numel() == target.numel() else scratch[: target.numel()]  # a view costs 1 us
        comm.sendrecv_add(given, (rank + 1) % p, target, (rank - 1) % p, arriving, weight, back=back)


def _pass_round(pieces: Sequence[torch.Tensor], comm: Communicator) -> None:
    """Overwrite piece r with rank r's, for all r."""
    p, rank = comm.size, comm.rank
    for step in range(p - 1):
        comm.sendrecv(pieces[(rank - step) % p], (rank + 1) % p, pieces[(rank - step - 1) % p], (rank - 1) % p)
