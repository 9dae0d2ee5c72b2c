"""One communicator, four machines: an algorithm receives `comm` and runs unchanged on each of them.

What the labs use, besides `comm.rank` and `comm.size`:

    comm.send(x, dest, tag=0)              comm.recv(out, source, tag=0)
    comm.sendrecv(x, dest, out, source)    comm.isend(x, dest), comm.irecv(out, source) -> request.wait()
    comm.broadcast(x, root=0)              comm.all_reduce(x)             comm.barrier()

To wait for the first of several messages, and to let virtual time pass:

    comm.wait_any(requests) -> index
    comm.accumulate(out, x)                comm.compute(seconds)          comm.clock()

For one vector that all ranks read and write, without locks (HOGWILD!):

    v = shared_tensor(comm, numel, dtype=torch.float32) -> v.read(index), v.add(index, values), v.write(index, values)

For fast forms:

    comm.sendrecv_add(x, dest, out, source, scratch, weight=1.0, back=False)
    comm.recv_with(use, scratch, source)
    comm.empty(numel, dtype=torch.float32), comm.lends(x), comm.segment
    comm.background() -> .start(f), .wait(), .close()

The contract, kept by every machine:

- Messages are contiguous torch tensors. `recv` fills `out` in place; `out` has the dtype and size of the message.
- Messages from one rank to another with one tag arrive in the order in which they were sent.
- A correct program does not rely on buffering: `send` may wait until the receiver has posted its `recv`
  (the simulated machine always waits; MPI may). A tensor given to `isend` must not change before `wait()`.
- `wait_any` waits until one of the requests is complete and returns its index. Requests that were waited for before do
  not count. The simulated machine takes the first that is complete in virtual time; among several complete at the same
  time it takes the lowest rank's, or one that the run's seed chooses.
- `broadcast`, `all_reduce` (sum) and `barrier` are the machine's own collectives, in place; every rank calls them in
  the same order. The course's own are in `hpcdl.collectives`.
- `accumulate(out, x, weight=1.0)` is `out = weight * out + x`, and `compute(seconds)` is work of a known length: the
  simulated machine charges virtual time for them (gamma per byte, and the seconds). On other machines `accumulate` adds
  and `compute` does nothing.
- `sendrecv_add` is `sendrecv` into `scratch` and `accumulate(out, scratch, weight)`; the content of `scratch`
  afterwards is undefined, since a machine may add directly from the message's memory. With `back=True`, on every rank,
  `x *= weight` comes first, and `sendrecv(out, source, x, dest)` last.
- `recv_with` is `recv` into `scratch` and `use(scratch)`, flat; a machine may call `use` with the sender's own memory,
  which `use` must neither change nor keep: it belongs to the sender again when `use` returns.
- `empty` returns a flat uninitialised tensor in the memory from which the machine sends fastest; this holds for all its
  views. Over MPI, ranks of one machine read it in place, without a copy. Such a message is received as any other; it
  counts as sent when its receiver has read it, while waiting for this message or another. Ranks need not agree on where
  a tensor comes from. `lends(x)` tells whether `x` is such a tensor (None on machines without such memory), and
  `segment` is the largest message, in bytes, that stays in the processor's cache (None if that does not matter).
- `background()` is a `Background`; a rank may have any number of them, and every rank makes them in the same order. It
  calls `f(comm)` concurrently with the rank's own work, one call after another in the order of `start`: in a thread
  (MPI, gloo), on a stream (NCCL), by a second clock (simulated). Its `comm` has the same ranks and supports only
  messages. They never match messages of the rank or of another background: their tags, below 16384, are on a separate
  channel. `wait()` returns when all calls are done, or raises the error of a call.
- `shared_tensor` starts as zeros; every rank calls it, in the same order. An index is an int, a slice, several ints, or
  None for all elements; `read` returns a copy. There are no locks: each element is read or written separately, and
  `add` reads and then writes each element, so that another rank's write in between is lost. Over MPI the methods act at
  once on memory shared by the ranks, which must be on one machine; `v.tensor` is that memory, for your own kernels. In
  the simulated machine reading or writing an element of n bytes takes n gamma seconds and happens at their end; at
  equal times the run's seed chooses the order, and `v.events` lists every access in order. There, reading `v.tensor`
  takes no virtual time; use it to inspect the elements.
- A wrong argument raises TypeError or ValueError with rank, name, value and rule; a message that does not fit, a lost
  message or a deadlock raises `CommError` (`DeadlockError` is one). How much of a misfit a machine can see differs: the
  simulated machine compares dtype and number of elements; MPI carries bytes, and compares only how many; gloo and NCCL
  compare nothing (with gloo a shorter message fills the beginning of `out`, and a longer one ends the process). So run
  a program on the simulated machine first.

The machines: `simulate(f, p)` runs p ranks in this process in virtual time; `MPIComm()` is MPI on CPU tensors;
`TorchComm()` is torch.distributed; `TracingComm(comm)` wraps any of them and records every operation;
`Group(comm, ranks)` is some of the ranks. To write another machine, subclass `Communicator` (`base`); to wrap a
communicator, subclass `Wrapper`.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.comm.base import Background, Communicator, Foreground
    from hpcdl.comm.distributed import TorchComm
    from hpcdl.comm.errors import CommError, DeadlockError, RankError
    from hpcdl.comm.group import Group
    from hpcdl.comm.mpi.machine import MPIComm
    from hpcdl.comm.request import Request
    from hpcdl.comm.sharing import Access, SharedTensor, shared_tensor
    from hpcdl.comm.simulated.run import Simulation, simulate
    from hpcdl.comm.tracing import Event, Trace, TracingComm
    from hpcdl.comm.wrapper import Wrapper

# Each machine is imported on first use: a simulation must not start MPI.
__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "Communicator": "base",
        "Request": "request",
        "Background": "base",
        "Foreground": "base",
        "CommError": "errors",
        "DeadlockError": "errors",
        "RankError": "errors",
        "simulate": "simulated.run",
        "Simulation": "simulated.run",
        "MPIComm": "mpi.machine",
        "TorchComm": "distributed",
        "TracingComm": "tracing",
        "Trace": "tracing",
        "Event": "tracing",
        "Group": "group",
        "Wrapper": "wrapper",
        "shared_tensor": "sharing",
        "SharedTensor": "sharing",
        "Access": "sharing",
    },
)
