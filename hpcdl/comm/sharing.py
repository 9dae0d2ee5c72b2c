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
    """`tensor`, flat, in memory that all ranks of `comm` see; the contract is in `hpcdl.comm`.

    Values of another dtype are converted. Raises ValueError for values that the vector's dtype cannot hold: fractions
    and overflows in integers, complex numbers in real ones; floats are rounded.
    """

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
        given = torch.as_tensor(values).detach()
        values = self._cast(op, given).to("cpu").reshape(-1)
        if values.numel() not in (1, elements.numel()):
            raise ValueError(
                f"rank {self._rank}: {op}: {values.numel()} values for {elements.numel()} elements; give one for each, "
                "or one for all"
            )
        return values.expand(elements.numel())

    def _cast(self, op: str, values: torch.Tensor) -> torch.Tensor:
        """Return `values` in the vector's dtype; raise ValueError where that would make other numbers of them."""
        dtype = self.tensor.dtype
        if values.dtype == dtype:
            return values
        fits = dtype.is_complex or not values.is_complex()
        if fits and not dtype.is_floating_point and not dtype.is_complex:
            fits = torch.equal(values.to(dtype).to(values.dtype), values)  # int8 has 2.0, and neither 0.5 nor 300
        if not fits:
            raise ValueError(
                f"rank {self._rank}: {op}: the values are {values.dtype} and the vector {dtype}, which has other "
                f"numbers; round them first, or make the vector with dtype={values.dtype}"
            )
        return values.to(dtype)


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
