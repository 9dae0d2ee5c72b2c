"""Turn a worker into a rank of a real MPI, before it enters its walls and before student code runs.

Then it closes every connection that MPI opened and removes the name of the ranks' shared memory. That memory is the
only thing that a rank has in addition to other workers.
"""

import contextlib
import os
from pathlib import Path
from typing import cast

# Messages go through shared memory: the walls forbid to read another process's. The walls apply to one thread, and with
# these settings MPI has no other; UCX would have one.
SETTINGS = {"MPIR_CVAR_CH4_CMA_ENABLE": "0", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}

machines: dict[int, object] = {}  # number of ranks n -> this rank's communicator of the first n ranks


def join(descriptor: int, rank: int, size: int, keep: int) -> None:
    """Become rank `rank` of `size`, with the mpiexec at `descriptor`; of all sockets only `keep` stays open."""
    os.environ.update(SETTINGS, PMI_FD=str(descriptor), PMI_RANK=str(rank), PMI_SIZE=str(size))
    os.environ.update(MPI_LOCALRANKID=str(rank), MPI_LOCALNRANKS=str(size))
    from mpi4py import MPI

    from hpcdl.comm.mpi import MPIComm

    for p in range(2, size + 1):
        part = cast("MPI.Intracomm", MPI.COMM_WORLD.Split(0 if rank < p else MPI.UNDEFINED))
        if rank < p:
            machines[p] = MPIComm(part)
    MPI.COMM_WORLD.Barrier()  # all have found the shared memory
    for number, target in _open_files():
        if target.startswith("/dev/shm/"):
            Path(target).unlink(missing_ok=True)
        elif target.startswith("socket:") and number != keep:
            os.close(number)


def _open_files() -> list[tuple[int, str]]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor that listed the directory
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found
