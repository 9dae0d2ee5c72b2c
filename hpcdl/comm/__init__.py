"""One communicator, four machines: an algorithm receives `comm` and runs unchanged on each of them.

    comm.rank, comm.size
    comm.send(x, dest, tag=0)              comm.recv(out, source, tag=0)
    comm.sendrecv(x, dest, out, source)    comm.isend(x, dest), comm.irecv(out, source) -> request.wait()
    comm.sendrecv_add(x, dest, out, source, scratch, weight=1.0)
    comm.broadcast(x, root=0)              comm.all_reduce(x)             comm.barrier()
    comm.accumulate(out, x)                comm.compute(seconds)          comm.clock()
    comm.empty(numel, dtype=torch.float32)
    comm.background() -> .start(f), .wait(), .close()

The contract, kept by every machine:

- Messages are contiguous torch tensors. `recv` fills `out` in place; `out` has the dtype and size of the message.
- Messages from one rank to another with one tag arrive in the order in which they were sent.
- A correct program does not rely on buffering: `send` may wait until the receiver has posted its `recv`
  (the simulated machine always waits; MPI may). What `isend` was given must not change before `wait()`.
- `empty` is a flat tensor of any content in memory that the machine sends from best, with all its views: over MPI,
  ranks of one machine read it where it is, without a copy. A message from it is received as any other; it is sent when
  its receiver waits, for this message or another. Ranks need not agree on where a tensor comes from.
- `sendrecv_add` is `sendrecv` into `scratch` and `accumulate(out, scratch, weight)`; what `scratch` holds afterwards
  is left open, since a machine may add from where the message lies. With `back=True`, on every rank, `x *= weight`
  comes first, and `sendrecv(out, source, x, dest)` last.
- `broadcast`, `all_reduce` (sum) and `barrier` are the machine's own collectives, in place; every rank calls them in
  the same order. The course's own are in `hpcdl.collectives`.
- `accumulate(out, x, weight=1.0)` is `out = weight * out + x`, and `compute(seconds)` is work of a known length: the
  simulated machine charges virtual time for them (gamma per byte, and the seconds), elsewhere the first adds and the
  second does nothing.
- What `background()` returns calls `f(comm)` beside the rank's own work, one after the other in the order of `start`:
  a thread (MPI, gloo), a stream (NCCL), a second clock (simulated). Its `comm` has the same ranks, and messages only,
  which meet none of the rank's own. `wait()` returns when all is done, and raises what a call raised.
- A wrong argument raises TypeError or ValueError with rank, name, value and rule; a message that does not fit, a lost
  message or a deadlock raises `CommError` (`DeadlockError` is one).

The machines: `simulate(f, p)` runs p ranks in this process in virtual time; `MPIComm()` is MPI on CPU tensors;
`TorchComm()` is torch.distributed; `TracingComm(comm)` wraps any of them and records every operation;
`Group(comm, ranks)` is some of the ranks.
"""

from hpcdl.lazy import exports

# Each machine is imported when it is first used: MPI must not start because someone simulates.
__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "Communicator": "base",
        "Request": "base",
        "CommError": "base",
        "DeadlockError": "base",
        "RankError": "base",
        "simulate": "simulated",
        "Simulation": "simulated",
        "MPIComm": "mpi",
        "TorchComm": "distributed",
        "TracingComm": "tracing",
        "Trace": "tracing",
        "Event": "tracing",
        "Group": "group",
    },
)
