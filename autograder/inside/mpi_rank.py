"""In a worker: it becomes a rank of a real MPI, before it enters its walls and before a line of the student's runs.

Then it closes every connection that MPI opened and removes the name of the memory that the ranks share. That memory is
all that a rank has beyond other workers.
"""

import contextlib
import os
from pathlib import Path
from typing import cast

# Messages go through shared memory: the walls forbid to read another process's. They hold for one thread, and MPI has
# no other with these; UCX would have.
SETTINGS = {"MPIR_CVAR_CH4_CMA_ENABLE": "0", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}

machines: dict[int, object] = {}  # number of ranks -> this rank's communicator among the first so many


def join(descriptor: int, rank: int, size: int, keep: int) -> None:
    """Become rank `rank` of `size`, with the mpiexec at `descriptor`; of all sockets `keep` alone stays open."""
    os.environ.update(SETTINGS, PMI_FD=str(descriptor), PMI_RANK=str(rank), PMI_SIZE=str(size))
    os.environ.update(MPI_LOCALRANKID=str(rank), MPI_LOCALNRANKS=str(size))
    from mpi4py import MPI

    from hpcdl.comm.mpi import MPIComm

    for p in range(2, size + 1):
        part = cast("MPI.Intracomm", MPI.COMM_WORLD.Split(0 if rank < p else MPI.UNDEFINED))
        if rank < p:
            machines[p] = MPIComm(part)
    MPI.COMM_WORLD.Barrier()  # all have found the memory that they share
    for number, target in _open_files():
        if target.startswith("/dev/shm/"):
            Path(target).unlink(missing_ok=True)
        elif target.startswith("socket:") and number != keep:
            os.close(number)


def _open_files() -> list[tuple[int, str]]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor that listed them
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found
