"""The protocol of workers and servers: the first ranks are servers, each with a share of the weights.

A worker sends each server a request, two int64: what it wants (a sum of the flags below), and how many iterations it
has finished. With PUSH, its share of the gradient follows; with PULL or HELLO, the server answers.
"""

import torch

from hpcdl.comm import Communicator

HELLO, PUSH, PULL, STOP, LOST = (
    1,
    2,
    4,
    8,
    16,
)  # who are you with; add this; give me the weights; I am through; I failed
REQUEST, GRADIENT, WEIGHTS, CLOCK = range(4)  # tags


def shares(x: torch.Tensor, servers: int) -> tuple[torch.Tensor, ...]:
    """Return the servers' shares of a flat tensor, as views; their sizes differ by one at most."""
    return x.tensor_split(servers)


def check_servers(servers: int, comm: Communicator, serves: bool) -> int:
    """Return `servers` if it leaves a rank for a worker and fits this rank's role; otherwise raise ValueError."""
    if type(servers) is not int or not 1 <= servers < comm.size:
        raise ValueError(f"servers is {servers!r} of {comm.size} ranks; there is at least one server and one worker")
    if (comm.rank < servers) is not serves:
        other = "worker" if serves else "server"
        raise ValueError(f"rank {comm.rank} is a {other}; ranks below {servers} are servers, the others workers")
    return servers


def check_weights(w: torch.Tensor) -> None:
    """Raise ValueError if `w` is not a flat tensor."""
    if w.dim() != 1:
        raise ValueError(f"w has shape {tuple(w.shape)}; give the weights as one flat tensor")


def flat(gradient: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return `gradient` as a message for the servers: flat, in one piece, in the dtype of `w`; without a copy if it is.

    Raises TypeError for what is not a tensor, or complex where `w` is not, and ValueError for another number of
    elements.
    """
    if not isinstance(gradient, torch.Tensor):
        raise TypeError(
            f"the gradient is a {type(gradient).__name__}; give a tensor with the {w.numel()} elements of w"
        )
    if gradient.numel() != w.numel():
        raise ValueError(
            f"the gradient has shape {tuple(gradient.shape)}; it has one element for each of the {w.numel()} of w"
        )
    if gradient.is_complex() and not w.is_complex():
        raise TypeError(f"the gradient is {gradient.dtype} and w is {w.dtype}; give its real part")
    dense = gradient.detach().to_dense() if gradient.layout is not torch.strided else gradient.detach()
    return dense.to(w.device, w.dtype).resolve_conj().resolve_neg().reshape(-1).contiguous()
