"""A tensor in memory shared by all ranks on a machine; the kernel frees it with the last rank."""

from typing import TYPE_CHECKING

import torch

from hpcdl.comm.mpi.memory import HANDLE_BYTES, attach, create
from hpcdl.comm.sharing import SharedTensor

if TYPE_CHECKING:
    from hpcdl.comm.mpi.machine import MPIComm


class MPISharedTensor(SharedTensor):
    """The methods act on memory at once: other ranks see each element as soon as it is written."""

    def _read(self, elements: torch.Tensor) -> torch.Tensor:
        return self.tensor[elements]

    def _add(self, elements: torch.Tensor, values: torch.Tensor) -> None:
        self.tensor.index_add_(0, elements, values)

    def _write(self, elements: torch.Tensor, values: torch.Tensor) -> None:
        self.tensor[elements] = values


def one_memory(comm: "MPIComm", numel: int, dtype: torch.dtype) -> SharedTensor:
    """Create the tensor on rank 0 and open it on the others; raise NotImplementedError on all ranks if one cannot."""
    nbytes = numel * dtype.itemsize
    memory = create(nbytes) if comm.rank == 0 else None
    handle = torch.frombuffer(bytearray(memory.handle if memory else HANDLE_BYTES), dtype=torch.uint8)
    comm._broadcast(handle, 0)
    if comm.rank > 0 and handle.any():
        memory = attach(bytes(handle.tolist()))
    without = torch.zeros(comm.size, dtype=torch.int64)
    without[comm.rank] = memory is None
    comm._all_reduce(without)  # rank 0 keeps the file until all have opened it
    if without.any():
        raise NotImplementedError(
            f"rank {comm.rank}: shared_tensor: {_ranks(without)} cannot open rank 0's memory; all ranks must be on "
            "one Linux machine (x86-64), in containers that see each other's processes: start them there"
        )
    assert memory is not None  # otherwise `without` has raised
    return MPISharedTensor(comm, memory.view(dtype, 0, nbytes) if nbytes else torch.empty(0, dtype=dtype))


def _ranks(without: torch.Tensor) -> str:
    numbers = without.nonzero().flatten().tolist()
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
