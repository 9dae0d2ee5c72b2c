"""MPI: its machine, and how long messages between ranks of one computer take a shorter way than through MPI.

`machine` is `MPIComm` and its collectives, `point_to_point` its messages and the waits for them. `cells` and `shared`
are the shorter ways: through memory of the receiver, and from memory of the sender; `memory` is what processes share,
and `one_memory` a tensor that they all read and write.
"""

from hpcdl.comm.mpi.machine import MPIComm

__all__ = ["MPIComm"]
