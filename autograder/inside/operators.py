"""Find torch's operators by patterns, and put a watcher before each in the dispatcher."""

import fnmatch
import functools
import re
from collections.abc import Callable, Hashable, Iterator, Set
from typing import Any

import torch

# Above the kernels of each device and below autograd. Operators that compute have no kernel of their own here.
DOOR = "BackendSelect"
# Above all others, and of no tensor: calls meet its kernels only on a thread that asks for it. Torch has it for tests.
ASKED = "TESTING_ONLY_GenericMode"
COMPOSITE, FIRST = "CompositeImplicitAutograd", ("AutogradCPU", "CPU")  # keys by which calls of composites come

_library: Any = torch._C._dispatch_library
_KEYS: dict[str, Any] = {name: torch._C._parse_dispatch_key(name) for name in (DOOR, ASKED)}
_BEYOND = {name: torch._C._dispatch_keyset_full_after(key) for name, key in _KEYS.items()}

Watch = Callable[[str], object]  # receives an operator's name before each call


def matching(patterns: tuple[str, ...], key: Hashable) -> frozenset[str]:
    """Return the operators named by patterns with `::`, except those that only call others, whose doors come later.

    An operator that only calls others is returned if a pattern is its name, without `*`. `key` changes with imports.
    """
    wanted = tuple(pattern for pattern in patterns if "::" in pattern)
    return _matching(_names((key, len(torch.ops.loaded_libraries))), wanted) if wanted else frozenset()


@functools.lru_cache(maxsize=1)  # torch rebuilds the list of all names, which takes milliseconds
def _names(_: Hashable) -> frozenset[str]:
    """Return the names of all operators; asked again after an import or a newly loaded operator library."""
    return frozenset(torch._C._dispatch_get_all_op_names())


@functools.lru_cache(maxsize=256)
def _matching(names: frozenset[str], patterns: tuple[str, ...]) -> frozenset[str]:
    matches = re.compile("|".join(map(fnmatch.translate, patterns))).match
    found = [name for name in names if matches(name.partition(".")[0])]
    return frozenset(
        name
        for name in found
        if (name.partition(".")[0] in patterns if _has_kernel(name, COMPOSITE) else computes(name))
    )


@functools.cache  # asked before the first door is put in, which is such a kernel, too
def computes(name: str) -> bool:
    return not _has_kernel(name, DOOR)


def watching(name: str, watch: Watch, key: str = DOOR) -> object:
    """Let `watch` know of calls of `name` for as long as the returned object exists; with `ASKED`, where it is asked.

    It is no `torch.library.Library`: Python's table of finalizers would show that to everyone.
    """
    namespace, _, rest = name.partition("::")
    library = _library("IMPL", namespace, "", __file__, 0)
    for kernel, at, with_keyset in _watchers(name, watch, key):
        library.impl(rest, at, kernel, with_keyset)
    return library


@functools.cache  # once in a process: without it, operators that have no kernel there would fail
def fall_through() -> object:
    """Let calls of operators pass `ASKED` where it has no kernel of theirs."""
    library = _library("IMPL", "_", ASKED, __file__, 0)
    library.fallback(ASKED, torch.library.fallthrough_kernel, False)
    return library


def ask(asked: bool, _set: Callable = torch._C._dispatch_tls_set_dispatch_key_included) -> None:
    """Let calls on this thread meet the kernels of `ASKED` from now on, or no longer."""
    _set(_KEYS[ASKED], asked)


def is_asked() -> bool:
    """Return whether calls on this thread meet the kernels of `ASKED`."""
    return torch._C._dispatch_tls_is_dispatch_key_included(_KEYS[ASKED])


def _watchers(name: str, watch: Watch, key: str) -> Iterator[tuple[Callable, str, bool]]:
    """Yield what a library's `impl` takes, so that `watch` knows of calls of `name`."""
    operator, is_composite = _known(name)
    beyond = _BEYOND[key]

    def kernel(keys, *args, **kwargs):
        watch(name)
        return operator.redispatch(keys & beyond, *args, **kwargs)

    def composite(*args, **kwargs):
        watch(name)
        return operator.decompose(*args, **kwargs)

    if is_composite and key == DOOR:  # no call of theirs comes so far
        for first in FIRST:
            yield composite, first, False
    else:
        yield kernel, key, True


@functools.cache  # each check watches hundreds
def _known(name: str) -> tuple[Any, bool]:
    """Return torch's operator of that name, and whether it only calls others."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    return operator, _has_kernel(name, COMPOSITE)


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def watch_only(wanted: Set[str], watchers: dict[str, object], watching: Callable[[str], object]) -> None:
    """Let `watchers` have those of the operators `wanted` and no other, unless none is wanted.

    Then a worker's cells run, or a check has ended, and the next exercise refuses much of the same.
    """
    if wanted:
        for name in watchers.keys() - wanted:
            del watchers[name]  # torch removes its kernels when it is freed
    for name in wanted - watchers.keys():
        watchers[name] = watching(name)
