"""The parameter server: some ranks own the sums; every rank sends them its data and gets the sums back."""

from collections.abc import Iterator

import torch

from hpcdl.collectives.chunks import chunks, weigh
from hpcdl.comm import Communicator


def parameter_server_all_reduce(x: torch.Tensor, comm: Communicator, weight: float = 1.0, *, servers: int = 1) -> None:
    """Sum `weight * x` over the ranks in place: ranks 0 to `servers`-1 each sum one share and send it to everyone.

    In round d rank r deals with the ranks d above and below, so that no two queue for one server. 2 k (p-1) messages of
    about n/k bytes for k servers: 2(p-1) (alpha + n/k beta) + (p-1) n/k gamma. One server costs the same as `naive`, p
    servers the same as the ring. Raises ValueError unless 1 <= servers <= p (Li et al. 2014, "Scaling distributed
    machine learning with the parameter server", is where servers share the parameters).
    """
    comm.check_tensor("parameter_server_all_reduce", "x", x)
    if not 1 <= servers <= comm.size:
        raise ValueError(f"servers is {servers}; each server is one of the ranks: 1 to {comm.size}")
    shares = chunks(weigh(x, weight), servers)
    mine = shares[comm.rank] if comm.rank < servers else None
    incoming = torch.empty_like(mine) if mine is not None else None
    for above, below in _rounds(comm):
        _exchange(comm, shares[above] if above < servers else None, above, incoming, below)
        if mine is not None and incoming is not None:
            comm.accumulate(mine, incoming)
    for above, below in _rounds(comm):
        _exchange(comm, mine, above, shares[below] if below < servers else None, below)


def _rounds(comm: Communicator) -> Iterator[tuple[int, int]]:
    return (((comm.rank + d) % comm.size, (comm.rank - d) % comm.size) for d in range(1, comm.size))


def _exchange(comm: Communicator, x: torch.Tensor | None, dest: int, out: torch.Tensor | None, source: int) -> None:
    """Send `x` and receive `out`, each if it is given."""
    if x is not None and out is not None:
        comm.sendrecv(x, dest, out, source)
    elif x is not None:
        comm.send(x, dest)
    elif out is not None:
        comm.recv(out, source)
