"""A vector that all ranks read and write, element by element and without locks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import index as as_int
from typing import NamedTuple

import torch

from hpcdl.comm.base import Communicator

Index = int | slice | Sequence[int] | torch.Tensor | None


class Access(NamedTuple):
    """One element read or written: the value read, or the new value. `seconds` is virtual time."""

    seconds: float
    rank: int
    op: str  # "read" or "write"
    element: int
    value: float


class SharedTensor(ABC):
    """`tensor`, flat, in memory that all ranks of `comm` see; the contract is in `hpcdl.comm`."""

    def __init__(self, comm: Communicator, tensor: torch.Tensor):
        self._rank, self.tensor = comm.rank, tensor

    def read(self, index: Index = None) -> torch.Tensor:
        """Return a copy of these elements: (number of elements,)."""
        return self._read(self._elements("read", index))

    def add(self, index: Index, values: torch.Tensor | float) -> None:
        """Add `values`, one for each element or one for all: each element is read, and then written."""
        elements = self._elements("add", index)
        self._add(elements, self._values("add", elements, values))

    def write(self, index: Index, values: torch.Tensor | float) -> None:
        """Overwrite these elements, including other ranks' writes."""
        elements = self._elements("write", index)
        self._write(elements, self._values("write", elements, values))

    @abstractmethod
    def _read(self, elements: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def _add(self, elements: torch.Tensor, values: torch.Tensor) -> None: ...

    @abstractmethod
    def _write(self, elements: torch.Tensor, values: torch.Tensor) -> None: ...

    def _elements(self, op: str, index: Index) -> torch.Tensor:
        """Return the elements' positions, int64, in the order of `index`."""
        numel = self.tensor.numel()
        if index is None or isinstance(index, slice):
            return torch.tensor(range(numel)[index or slice(None)], dtype=torch.int64)
        elements = torch.as_tensor(index).detach().cpu().reshape(-1)
        if elements.numel() and (elements.dtype is torch.bool or elements.is_floating_point() or elements.is_complex()):
            raise TypeError(f"rank {self._rank}: {op}: index is {elements.dtype}; elements are numbered by ints")
        wrong = elements[(elements < 0) | (elements >= numel)].tolist()
        if wrong:
            raise ValueError(f"rank {self._rank}: {op}: index has {wrong[0]}; elements are 0 to {numel - 1}")
        return elements.long()

    def _values(self, op: str, elements: torch.Tensor, values: torch.Tensor | float) -> torch.Tensor:
        values = torch.as_tensor(values).detach().to("cpu", self.tensor.dtype).reshape(-1)
        if values.numel() not in (1, elements.numel()):
            raise ValueError(
                f"rank {self._rank}: {op}: {values.numel()} values for {elements.numel()} elements; give one for each, "
                "or one for all"
            )
        return values.expand(elements.numel())


def shared_tensor(comm: Communicator, numel: int, dtype: torch.dtype = torch.float32) -> SharedTensor:
    """Return `numel` zeros that all ranks of `comm` read and write; every rank calls it with the same arguments.

    Raises ValueError if `numel` is below 0, CommError if the ranks disagree, and NotImplementedError on every rank if
    they cannot share memory: on several machines, on torch.distributed, in a Group.
    """
    if (numel := as_int(numel)) < 0:
        raise ValueError(f"rank {comm.rank}: shared_tensor: numel is {numel}; a tensor has 0 elements or more")
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"rank {comm.rank}: shared_tensor: dtype is {dtype!r}; it is one of torch's")
    return comm._shared_tensor(numel, dtype)
