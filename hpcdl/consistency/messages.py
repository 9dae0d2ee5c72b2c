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


def as_message(gradient: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return a gradient of the flat weights `w` as it can be sent: itself, or a contiguous copy.

    Raises ValueError if it does not fit, before its receiver is told that it will come.
    """
    if not isinstance(gradient, torch.Tensor) or gradient.is_sparse:
        raise ValueError(f"the gradient is a {type(gradient).__name__}; give it as a flat dense tensor, like w")
    if gradient.shape != w.shape or gradient.dtype != w.dtype or gradient.device != w.device:
        raise ValueError(
            f"the gradient has {gradient.numel()} {gradient.dtype} elements in shape {tuple(gradient.shape)} on "
            f"{gradient.device}, and w has {w.dtype} elements in shape {tuple(w.shape)} on {w.device}; give a gradient "
            "of w's shape, dtype and device, such as gradient.flatten().to(w)"
        )
    return gradient.detach().resolve_conj().resolve_neg().contiguous()
