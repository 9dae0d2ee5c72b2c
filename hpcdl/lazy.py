"""A package whose names are imported when they are first used."""

import importlib
from collections.abc import Callable


def exports(package: str, homes: dict[str, str]) -> tuple[list[str], Callable, Callable]:
    """`__all__`, `__getattr__` and `__dir__` of `package`, of whose names `homes` says in which module each is."""
    names = sorted(homes)

    def find(name: str):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return names, find, lambda: names
