"""The MPI machine, and faster ways for long messages between ranks on one computer.

`machine` holds `MPIComm` and its collectives, `point_to_point` its messages and waits. `cells` and `shared` are the
faster ways: through the receiver's memory, and from the sender's memory. `memory` is memory that processes share, and
`one_memory` a tensor that they all read and write.
"""

from hpcdl.comm.mpi.machine import MPIComm

__all__ = ["MPIComm"]
