"""Wrong answers to `broadcast_parameters`."""

from autograder.bank.ddp.later import ALL_OF_OVERLAP, of
from autograder.bank.slips import answers_to

ALL_OF_BROADCAST = ("all_have_rank_0s", "any_root", "in_place")
wrong, slip = answers_to("ddp.broadcast_parameters")
BEGINS = of("OverlappedDDP", ALL_OF_OVERLAP)

slip(
    "takes the mean",
    "comm.broadcast(param.detach(), root)",
    "comm.all_reduce(param.detach())\n        param.detach().div_(comm.size)",
    fails=(*ALL_OF_BROADCAST, *BEGINS),
    says="These are the means over the ranks",
)
slip("always rank 0's", "detach(), root", "detach(), 0", fails="any_root", says="These are rank 0's")


@wrong("receives into a copy", fails=(*ALL_OF_BROADCAST, *BEGINS), says="the root's never arrived")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        copy = param.detach().clone()
        comm.broadcast(copy, root)
        param = copy


@wrong("puts new tensors into the list", fails=("any_root", "in_place", *BEGINS), says="was replaced in the list")
def broadcast_parameters(params, comm, root=0):
    params = params if isinstance(params, list) else list(params)
    for i, param in enumerate(params):
        copy = param.detach().clone()
        comm.broadcast(copy, root)
        params[i] = copy


@wrong("sends to the next rank only", fails=(*ALL_OF_BROADCAST, *BEGINS), says="the root's never arrived")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        if comm.rank == root and comm.size > 1:
            comm.send(param.detach(), (root + 1) % comm.size)
        elif comm.rank == (root + 1) % comm.size and comm.size > 1:
            comm.recv(param.detach(), root)


slip(
    "goes through the parameters twice",
    "for param in params:",
    "assert all(param.dim() for param in params)\n    for param in params:",
    fails=("any_root", *BEGINS),
    says="still has its own parameter",
)
slip(
    "everybody waits for the root", "comm.broadcast", "comm.recv", fails=(*ALL_OF_BROADCAST, *BEGINS), says="a deadlock"
)
slip(
    "leaves out frozen parameters",
    "comm.broadcast(param.detach(), root)",
    "if param.requires_grad:\n            comm.broadcast(param.detach(), root)",
    fails=(*ALL_OF_BROADCAST, *BEGINS),
    says="which is frozen, on rank 1",
)


@wrong("gives each parameter another memory", fails="in_place", says="points the parameter at another memory")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        values = param.detach().clone()
        comm.broadcast(values, root)
        param.data = values
