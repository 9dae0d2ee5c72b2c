"""A module's parameters, which tell a wrapper when one is about to be used."""

from collections.abc import Callable, Iterator
from typing import Any


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
