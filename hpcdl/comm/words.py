"""Error texts of all machines: operations, tensors, and ranks that disagree."""

from collections.abc import Sequence

import torch

from hpcdl.comm.request import Request


def describe(op: str, requests: tuple[Request, ...] = (), detail: str = "") -> str:
    """Describe an operation as the caller wrote it: "recv(source=1)", "isend(dest=2).wait()", "broadcast(root=0)"."""
    targets = ", ".join(request.target for request in requests) or detail
    return f"{op}({targets})" + (".wait()" if op.startswith("i") else "")


def size_of(x: torch.Tensor | None) -> str:
    """Return the number of elements and the dtype: "8 float32"; empty without a tensor."""
    return "" if x is None else f"{x.numel()} {str(x.dtype).removeprefix('torch.')}"


def disagreement(rank: int, call: Sequence[str], other: int, other_call: Sequence[str]) -> str | None:
    """Describe how two ranks' collectives differ, each given as (text, size of x); None if they match."""
    if call[0] != other_call[0]:
        return (
            f"rank {rank} calls {call[0]} where rank {other} called {other_call[0]}; "
            "every rank calls the same collectives in the same order"
        )
    if call[1] != other_call[1]:
        return (
            f"{call[0]}: x is {call[1]} on rank {rank} and {other_call[1]} on rank {other}; every rank needs the same"
        )
    return None
