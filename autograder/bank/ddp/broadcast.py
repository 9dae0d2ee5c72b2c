"""Wrong answers to `broadcast_parameters`."""

from autograder.authoring import wrong
from autograder.bank.ddp.later import ALL_OF_OVERLAP, of

ALL_OF_BROADCAST = ("all_have_rank_0s", "any_root", "in_place")
BROADCAST = "ddp.broadcast_parameters"
BEGINS = of("OverlappedDDP", ALL_OF_OVERLAP)


@wrong(
    BROADCAST,
    "takes the mean",
    fails=(*ALL_OF_BROADCAST, *BEGINS),
    says="These are the means over the ranks",
)
def broadcast_parameters(params, comm, root=0):
    for param in params:
        comm.all_reduce(param.detach())
        param.detach().div_(comm.size)


@wrong(BROADCAST, "always rank 0's", fails="any_root", says="These are rank 0's")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        comm.broadcast(param.detach(), 0)


@wrong(BROADCAST, "receives into a copy", fails=(*ALL_OF_BROADCAST, *BEGINS), says="the root's never arrived")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        copy = param.detach().clone()
        comm.broadcast(copy, root)
        param = copy


@wrong(
    BROADCAST,
    "puts new tensors into the list",
    fails=("any_root", "in_place", *BEGINS),
    says="was replaced in the list",
)
def broadcast_parameters(params, comm, root=0):
    params = params if isinstance(params, list) else list(params)
    for i, param in enumerate(params):
        copy = param.detach().clone()
        comm.broadcast(copy, root)
        params[i] = copy


@wrong(BROADCAST, "sends to the next rank only", fails=(*ALL_OF_BROADCAST, *BEGINS), says="the root's never arrived")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        if comm.rank == root and comm.size > 1:
            comm.send(param.detach(), (root + 1) % comm.size)
        elif comm.rank == (root + 1) % comm.size and comm.size > 1:
            comm.recv(param.detach(), root)


@wrong(
    BROADCAST,
    "goes through the parameters twice",
    fails=("any_root", *BEGINS),
    says="still has its own parameter",
)
def broadcast_parameters(params, comm, root=0):
    assert all(param.dim() for param in params)
    for param in params:
        comm.broadcast(param.detach(), root)


@wrong(BROADCAST, "everybody waits for the root", fails=(*ALL_OF_BROADCAST, *BEGINS), says="a deadlock")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        comm.recv(param.detach(), root)


@wrong(
    BROADCAST,
    "leaves out frozen parameters",
    fails=(*ALL_OF_BROADCAST, *BEGINS),
    says="which is frozen, on rank 1",
)
def broadcast_parameters(params, comm, root=0):
    for param in params:
        if param.requires_grad:
            comm.broadcast(param.detach(), root)


@wrong(
    BROADCAST, "gives each parameter another memory", fails="in_place", says="points the parameter at another memory"
)
def broadcast_parameters(params, comm, root=0):
    for param in params:
        values = param.detach().clone()
        comm.broadcast(values, root)
        param.data = values
