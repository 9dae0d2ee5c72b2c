"""A hash of compiled functions, which ties a run to the check that its code has passed."""

import hashlib
import inspect
from collections.abc import Iterable
from types import CodeType
from typing import Any


def code_of(namespace: dict, names: Iterable[str]) -> str:
    """Return a hash of the functions and classes with these names, and of everything in `namespace` that they call.

    Comments, layout and line numbers do not count. A name that does not exist counts as missing.
    """
    digest, waiting, seen = hashlib.sha256(), list(names), set[str]()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        digest.update(f"\0{name}\0".encode())
        for code in _codes(namespace.get(name)):
            digest.update(repr(_plain(code)).encode("utf-8", "surrogatepass"))
            waiting += sorted(used for used in _names(code) if _is_own(namespace.get(used), namespace))
    return digest.hexdigest()[:16]


def _codes(value: Any) -> list[CodeType]:
    """Return the compiled code of a function, of the function it wraps, or of a class's methods."""
    if isinstance(value, type):
        parts = [part for _, part in sorted(vars(value).items())]
        inner = [getattr(part, "fget", None) or getattr(part, "__func__", part) for part in parts]
        return [code for part in inner if not isinstance(part, type) for code in _codes(part)]
    function = inspect.unwrap(value) if callable(value) else value
    code = getattr(getattr(function, "py_func", function), "__code__", None)
    return [code] if isinstance(code, CodeType) else []


def _plain(value: Any) -> Any:
    """Return code as a tuple, without its location; constants are unchanged."""
    if isinstance(value, CodeType):
        names = value.co_name, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars
        return value.co_code, names, tuple(map(_plain, value.co_consts)), value.co_flags
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


def _names(code: CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _is_own(value: Any, namespace: dict) -> bool:
    """Return whether a function or class was defined in the same module as the names."""
    functions = _codes(value)
    module = getattr(value, "__module__", None)
    return bool(functions) and module == namespace.get("__name__", module)
