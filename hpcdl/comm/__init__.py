"""One communicator, four machines: an algorithm receives `comm` and runs unchanged on each of them.

What the labs use, beside `comm.rank` and `comm.size`:

    comm.send(x, dest, tag=0)              comm.recv(out, source, tag=0)
    comm.sendrecv(x, dest, out, source)    comm.isend(x, dest), comm.irecv(out, source) -> request.wait()
    comm.broadcast(x, root=0)              comm.all_reduce(x)             comm.barrier()

To wait for whoever comes first, and to let virtual time pass:

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
  (the simulated machine always waits; MPI may). What `isend` was given must not change before `wait()`.
- `wait_any` waits until one of the requests is complete and returns its index. Requests that were waited for before do
  not count. The simulated machine takes the first that is complete in virtual time; of those complete at the same time
  the lowest rank's, or one that the run's seed chooses.
- `broadcast`, `all_reduce` (sum) and `barrier` are the machine's own collectives, in place; every rank calls them in
  the same order. The course's own are in `hpcdl.collectives`.
- `accumulate(out, x, weight=1.0)` is `out = weight * out + x`, and `compute(seconds)` is work of a known length: the
  simulated machine charges virtual time for them (gamma per byte, and the seconds), elsewhere the first adds and the
  second does nothing.
- `sendrecv_add` is `sendrecv` into `scratch` and `accumulate(out, scratch, weight)`; what `scratch` holds afterwards
  is left open, since a machine may add from where the message lies. With `back=True`, on every rank, `x *= weight`
  comes first, and `sendrecv(out, source, x, dest)` last.
- `recv_with` is `recv` into `scratch` and `use(scratch)`, flat; a machine may call `use` with the sender's own memory,
  which is not to be changed, and not to be kept: it is the sender's again when `use` returns.
- `empty` is a flat tensor of any content in memory from which the machine sends best, with all its views: over MPI,
  ranks of one machine read it where it is, without a copy. Such a message is received as any other; it counts as sent
  when its receiver has read it, in a wait for this message or for another. Ranks need not agree on where a tensor comes
  from. `lends(x)` tells whether `x` is one (None on machines that have no such memory), and `segment` how many bytes a
  message should have at most to stay in the processor's cache (None where that does not matter).
- `background()` is a `Background`; a rank may have any number of them, and every rank makes them in the same order. It
  calls `f(comm)` beside the rank's own work, one after the other in the order of `start`, in a thread (MPI, gloo), on a
  stream (NCCL), by a second clock (simulated). Its `comm` has the same ranks, and messages only, which meet none of the
  rank's own, nor those of another background: their tags, below 16384, are on a channel of its own. `wait()` returns
  when all is done, or raises what a call raised.
- `shared_tensor` is zeros at first; every rank calls it, in the same order. An index is an int, a slice, several ints
  or None, for all; `read` returns a copy. Nothing locks: each element is read or written by itself, and `add` is a read
  and then a write of each, so that another rank's write between the two is lost. Over MPI the methods act at once on
  memory that the ranks, all on one machine, share; `v.tensor` is that memory, for kernels of your own. In the simulated
  machine reading or writing an element of n bytes takes n gamma seconds and happens at their end; at equal times the
  run's seed says who is first, and `v.events` has every access in the order in which they happened. There `v.tensor`
  is the same elements for whoever looks on: no time passes.
- A wrong argument raises TypeError or ValueError with rank, name, value and rule; a message that does not fit, a lost
  message or a deadlock raises `CommError` (`DeadlockError` is one).

The machines: `simulate(f, p)` runs p ranks in this process in virtual time; `MPIComm()` is MPI on CPU tensors;
`TorchComm()` is torch.distributed; `TracingComm(comm)` wraps any of them and records every operation;
`Group(comm, ranks)` is some of the ranks. To write another: subclass `Communicator` (`base`), or `Wrapper` for one
around a communicator.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
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

# Each machine is imported when it is first used: MPI must not start because someone simulates.
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
