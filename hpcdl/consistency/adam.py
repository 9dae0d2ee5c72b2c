"""Project Adam: activations and errors instead of a fully connected layer's gradient (Chilimbi et al. 2014, 5.1).

The gradient of an (n, m) weight is delta^T x, of x (batch, m) and delta (batch, n): where the batch is smaller than
mn / (m + n), the factors are shorter, and the server multiplies. (Not Adam, the optimizer.)

Adam's servers take updates in from many threads without locks: that is `fast_hogwild`.
"""

from collections import Counter
from collections.abc import Callable

import torch

from hpcdl.comm import Communicator, Request

WAYS = ("gradient", "factors")
HEADER, BODY, WEIGHT = range(3)  # tags
STOP, PULL, DENSE, FACTORS = range(4)


def crossover(m: int, n: int) -> float:
    """Return the batch at which both ways are as long: mn / (m + n); of VGG-16's fc7, m = n = 4,096, it is 2,048."""
    return m * n / (m + n)


def fc_bytes(batch: int, m: int, n: int, how: str, itemsize: int = 4) -> int:
    """Bytes of a layer's gradient on its way to the server: mn elements, or batch (m + n) as "factors"."""
    if how not in WAYS:
        raise ValueError(f"how is {how!r}; a gradient goes as {' or '.join(WAYS)}")
    return itemsize * (m * n if how == "gradient" else batch * (m + n))


def cheaper(batch: int, m: int, n: int) -> str:
    """Return the way of fewer bytes; the gradient where both are as long, which spares the server the product."""
    return min(WAYS, key=lambda how: fc_bytes(batch, m, n, how))


def push_layer(
    comm: Communicator, x: torch.Tensor, delta: torch.Tensor, server: int = 0, how: str | None = None
) -> str:
    """Send the gradient delta^T x of a layer to `server`, `how` or by the cheaper way; returns which.

    x (batch, m) is what went into the layer, delta (batch, n) the gradient of what came out of it, both contiguous.
    """
    batch, m, n = len(x), x.shape[1], delta.shape[1]
    how = how or cheaper(batch, m, n)
    fc_bytes(batch, m, n, how)  # refuses another `how`
    comm.send(torch.tensor([FACTORS if how == "factors" else DENSE, batch]), server, HEADER)
    for part in (x, delta) if how == "factors" else (delta.T @ x,):
        comm.send(part.detach(), server, BODY)
    return how


def pull_layer(comm: Communicator, weight: torch.Tensor, server: int = 0) -> None:
    """Overwrite `weight` (n, m) with the server's."""
    comm.send(torch.tensor([PULL, 0]), server, HEADER)
    comm.recv(weight, server, WEIGHT)


def leave(comm: Communicator, server: int = 0) -> None:
    """Tell `server` that this worker is through."""
    comm.send(torch.tensor([STOP, 0]), server, HEADER)


def serve_layer(comm: Communicator, weight: torch.Tensor, lr: float, workers: list[int]) -> Counter[str]:
    """Serve a layer's `weight` (n, m) to `workers` until each has left: weight -= lr delta^T x, in place, as they come.

    Returns how many gradients came each way.
    """
    headers = [torch.zeros(2, dtype=torch.int64) for _ in workers]
    requests: list[Request] = [
        comm.irecv(header, worker, HEADER) for header, worker in zip(headers, workers, strict=True)
    ]
    came: Counter[str] = Counter()
    left = len(workers)
    while left:
        i = comm.wait_any(requests)
        what, batch = headers[i].tolist()
        if what == STOP:
            left -= 1
            continue
        if what == PULL:
            comm.send(weight, workers[i], WEIGHT)
        else:
            came[_TAKE_IN[what](comm, weight, lr, workers[i], batch)] += 1
        requests[i] = comm.irecv(headers[i], workers[i], HEADER)
    return came


def _take_in_gradient(comm: Communicator, weight: torch.Tensor, lr: float, worker: int, batch: int) -> str:
    gradient = torch.empty_like(weight)
    comm.recv(gradient, worker, BODY)
    weight.sub_(gradient, alpha=lr)
    return "gradient"


def _take_in_factors(comm: Communicator, weight: torch.Tensor, lr: float, worker: int, batch: int) -> str:
    n, m = weight.shape
    x, delta = weight.new_empty(batch, m), weight.new_empty(batch, n)
    comm.recv(x, worker, BODY)
    comm.recv(delta, worker, BODY)
    weight.addmm_(delta.T, x, alpha=-lr)
    return "factors"


_TAKE_IN: dict[int, Callable[..., str]] = {DENSE: _take_in_gradient, FACTORS: _take_in_factors}
