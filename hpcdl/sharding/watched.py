"""A module's parameters, which tell a wrapper when one is about to be used."""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn


def refuse_copy(*_: Any) -> NoReturn:
    """Raise TypeError where a part of a fully sharded model is copied or pickled, as `__reduce_ex__`."""
    raise TypeError(
        "the weights of a module inside a FullyShardedDataParallel are in pieces on the ranks, and cannot be copied or "
        "pickled; build the module again and load the wrapper's state_dict() into it"
    )


class Watched(dict):
    """A module's parameters; calls `used` with a parameter's name before it is read.

    This includes the iterations of `parameters()` and `named_parameters()`.
    """

    def __init__(self, parameters: dict, used: Callable[[str], None]):
        super().__init__(parameters)
        self._used = used

    def __getitem__(self, name: str) -> Any:
        self._used(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        if name in self:
            self._used(name)
        return super().get(name, default)

    def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        return ((name, self[name]) for name in list(self))

    def values(self) -> Iterator[Any]:  # type: ignore[override]
        return (self[name] for name in list(self))

    in_pieces = True  # by which wrappers know it
    __reduce_ex__ = refuse_copy
