"""torch.distributed on one of our communicators: DDP, FSDP2 and DTensor run unchanged on simulated ranks.

    def rank(comm):
        with process_group(comm):
            model = DistributedDataParallel(network())
            ...

    simulate(rank, 4).trace     # DDP's messages, one by one

Collectives come from `hpcdl.collectives`: rings of point-to-point messages, which the machine traces and times. They
run when called, not in the background; `isend` and `irecv` are under way until their `wait()`. Groups of some ranks, as
`new_group` and device meshes make them, are groups of the same kind, with tags of their own. Each group records its
collectives in `calls`: (name, bytes of this rank's result or sum).
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp, distributed_c10d
from torch.futures import Future

from hpcdl.collectives import all_gather, broadcast, gather, reduce, reduce_scatter, ring_all_reduce, tree_all_reduce
from hpcdl.comm import Communicator, Group, Request
from hpcdl.comm.background import OffsetTags
from hpcdl.comm.channels import TAGS
from hpcdl.lazy import import_compiler

BACKEND = "hpcdl"
MESSAGES = TAGS // 2  # the tags of single messages begin here, those of collectives are below

_torchs: Any = distributed_c10d
_c10d: Any = torch._C._distributed_c10d


_TorchsGroup: Any = dist.ProcessGroup  # its overloads are written for callers


class CommGroup(_TorchsGroup):
    """A process group with collectives over `comm`; torch calls the methods, which have its names."""

    def __init__(self, comm: Communicator, name: str):
        super().__init__(comm.rank, comm.size)
        self.comm, self.calls, self._name = comm, list[tuple[str, int]](), name

    def getBackendName(self) -> str:
        return BACKEND

    def size(self) -> int:
        return self.comm.size

    def rank(self) -> int:
        return self.comm.rank

    @property
    def group_name(self) -> str:
        return self._name

    pg_name = group_name

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None):
        for x in tensors:
            self._note("all_reduce", x)
            total = _flat(x)
            ring_all_reduce(total, self.comm)
            _fill(x, self._mean(total, opts))
        return _done(tensors)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any):
        for x in tensors:
            self._note("broadcast", x)
            copy = _flat(x)
            self.comm.broadcast(copy, opts.rootRank)
            _fill(x, copy)
        return _done(tensors)

    def allgather(self, outs: Sequence[Sequence[torch.Tensor]], tensors: Sequence[torch.Tensor], opts: Any = None):
        for parts, x in zip(outs, tensors, strict=True):
            whole = x.new_empty(self.comm.size, x.numel())
            whole[self.comm.rank] = x.detach().reshape(-1)
            self._note("all_gather", whole)
            all_gather(whole.view(-1), self.comm)
            for part, row in zip(parts, whole, strict=True):
                _fill(part, row)
        return _done(outs)

    def all_gather_single(self, out: torch.Tensor, x: torch.Tensor, opts: Any = None):
        return self.allgather([list(out.chunk(self.comm.size))], [x])

    def all_gather_single_coalesced(self, outs: Sequence, tensors: Sequence, opts: Any = None):
        for out, x in zip(outs, tensors, strict=True):
            self.all_gather_single(out, x)
        return _done(outs)

    def reduce_scatter_single(self, out: torch.Tensor, x: torch.Tensor, opts: Any = None):
        self._note("reduce_scatter", x)
        _fill(out, self._mean(reduce_scatter(_flat(x), self.comm), opts))
        return _done(out)

    def scatter(self, outs: Sequence[torch.Tensor], tensors: Sequence[Sequence[torch.Tensor]], opts: Any):
        self._note("scatter", outs[0])
        root, mine = opts.rootRank, _flat(outs[0])
        if self.comm.rank == root:
            for rank, x in enumerate(tensors[0]):
                if rank != root:
                    self.comm.send(_flat(x), rank)
            mine = _flat(tensors[0][root])
        else:
            self.comm.recv(mine, root)
        _fill(outs[0], mine)
        return _done(outs)

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any):
        for x in tensors:
            self._note("reduce", x)
            total = _flat(x)
            reduce(total, self.comm, opts.rootRank)
            if self.comm.rank == opts.rootRank:
                _fill(x, self._mean(total, opts))
        return _done(tensors)

    def gather(self, outs: Sequence[Sequence[torch.Tensor]], tensors: Sequence[torch.Tensor], opts: Any):
        (x,) = tensors
        whole = x.new_empty(self.comm.size, x.numel())
        whole[self.comm.rank] = x.detach().reshape(-1)
        self._note("gather", whole)
        gather(whole.view(-1), self.comm, opts.rootRank)
        for part, row in zip(outs[0] if outs else (), whole, strict=False):
            _fill(part, row)
        return _done(outs)

    def reduce_scatter(self, outs: Sequence[torch.Tensor], tensors: Sequence[Sequence[torch.Tensor]], opts: Any = None):
        for out, parts in zip(outs, tensors, strict=True):
            if any(part.shape != out.shape for part in parts):
                raise ValueError(f"rank {self.comm.rank}: reduce_scatter: every tensor needs out's shape {out.shape}")
            self.reduce_scatter_single(out, torch.stack([part.detach() for part in parts]), opts)
        return _done(outs)

    def alltoall(self, outs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], opts: Any = None):
        self.calls.append(("all_to_all", sum(x.nbytes for x in outs)))
        received = [out.new_empty(out.numel()) for out in outs]
        others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
        requests = [self.comm.irecv(received[rank], rank, MESSAGES - 1) for rank in others]
        requests += [self.comm.isend(_flat(tensors[rank]), rank, MESSAGES - 1) for rank in others]
        received[self.comm.rank] = _flat(tensors[self.comm.rank])
        for request in requests:
            request.wait()
        for out, x in zip(outs, received, strict=True):
            _fill(out, x)
        return _done(outs)

    def all_to_all_single(
        self, out: torch.Tensor, x: torch.Tensor, out_rows: Sequence[int], rows: Sequence[int], opts: Any = None
    ):
        p = self.comm.size
        return self.alltoall(out.split(list(out_rows) or len(out) // p), x.split(list(rows) or len(x) // p))

    def send(self, tensors: Sequence[torch.Tensor], dest: int, tag: int):
        (x,) = tensors
        self._note("send", x)
        return _Message(self.comm.isend(_flat(x), dest, self._tag(tag)))

    def recv(self, tensors: Sequence[torch.Tensor], source: int, tag: int):
        (x,) = tensors
        self._note("recv", x)
        return _Message(self.comm.irecv(_flat(x), source, self._tag(tag)), x)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int):
        raise ValueError(f"rank {self.comm.rank}: recv without a source; this process group needs src=, a rank")

    def barrier(self, opts: Any = None):
        self.comm.barrier()
        return _done([])

    def _tag(self, tag: int) -> int:
        if not 0 <= tag < TAGS - MESSAGES - 1:
            raise ValueError(f"rank {self.comm.rank}: tag is {tag}; it is from 0 to {TAGS - MESSAGES - 2}")
        return MESSAGES + tag

    def _note(self, name: str, x: torch.Tensor) -> None:
        self.calls.append((name, x.nbytes))

    def _mean(self, total: torch.Tensor, opts: Any) -> torch.Tensor:
        operation = opts.reduceOp.op if opts is not None else ReduceOp.SUM
        if operation not in (ReduceOp.SUM, ReduceOp.AVG):
            raise ValueError(f"rank {self.comm.rank}: {operation}: this process group has sums and means alone")
        return total / self.comm.size if operation == ReduceOp.AVG else total


class _Message(_c10d.Work):
    """A message under way, which torch waits for; a received one is copied into `out`."""

    def __init__(self, request: Request, out: torch.Tensor | None = None):
        super().__init__()
        self._request, self._out = request, out

    def wait(self, timeout: Any = None) -> bool:
        self._request.wait()
        if self._out is not None:
            _fill(self._out, self._request.x)
        return True


class Members(OffsetTags):
    """Some ranks, with tags of their own: never another group's messages, even if ranks use groups in other orders."""

    def wrap(self, comm: Communicator) -> "Members":
        return Members(comm, self._channel_number)

    def _broadcast(self, x, root):
        broadcast(x, self, root)

    def _barrier(self):
        tree_all_reduce(torch.zeros(1, device=self.devices[0]), self)


def _flat(x: torch.Tensor) -> torch.Tensor:
    return x.detach().reshape(-1).clone()


def _fill(x: torch.Tensor, flat: torch.Tensor) -> None:
    x.detach().copy_(flat.view(x.shape))


def _done(result: Any):
    """Return torch's handle of a completed collective."""
    future: Future = Future()
    future.set_result(result)
    return _c10d._create_work_from_future(future)


# torch keeps a process's group in a global; ranks that are threads of one process each need their own.

_mine = threading.local()
_lock = threading.Lock()
_inside = [0]  # ranks of this process that currently have a group


@contextlib.contextmanager
def process_group(comm: Communicator) -> Iterator[CommGroup]:
    """Make a group over `comm` this rank's default process group inside the block; ranks may be threads of one
    process."""
    _mine.comm = comm
    with _a_world_for_each_thread(), torch.autograd.set_multithreading_enabled(False):
        dist.init_process_group(BACKEND, rank=comm.rank, world_size=comm.size, store=dist.HashStore())
        group: Any = dist.group.WORLD
        try:
            yield group
        finally:
            if dist.is_initialized():  # the block may have ended it
                dist.destroy_process_group()


@contextlib.contextmanager
def _a_world_for_each_thread() -> Iterator[None]:
    with _lock:
        import_compiler()
        from torch.testing._internal.distributed.multi_threaded_pg import ThreadLocalWorld

        if not _inside[0]:
            _mine_before.append(distributed_c10d._world)
            _torchs._world = ThreadLocalWorld()
            _c10d._set_thread_isolation_mode(True)
            _register()
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0]:
                _torchs._world = _mine_before.pop()
                _c10d._set_thread_isolation_mode(False)


_mine_before: list[Any] = []  # the world if each rank is a process


def _register() -> None:
    if BACKEND not in dist.Backend._plugins and BACKEND.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(BACKEND, _make, extended_api=True, devices=["cpu"])


def _make(options: Any, _: Any) -> CommGroup:
    """Make the group that torch describes: of all ranks if no ranks are given, else of these; every member calls it."""
    comm: Communicator = _mine.comm
    if not options.global_ranks_in_group:
        return CommGroup(comm, options.group_id)
    group = Group(comm, options.global_ranks_in_group)
    return CommGroup(Members(group, comm.channels.next_of(group)), options.group_id)
