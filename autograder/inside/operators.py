"""Find torch's operators by patterns, and put a watcher before each in the dispatcher."""

import fnmatch
import functools
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey

# Above the kernels of each device and below autograd. Operators that compute have no kernel of their own here.
DOOR = "BackendSelect"
BEYOND = torch._C._dispatch_keyset_full_after(DispatchKey.BackendSelect)
COMPOSITE, FIRST = "CompositeImplicitAutograd", ("AutogradCPU", "CPU")  # keys by which calls of composites come

_library: Any = torch._C._dispatch_library

Watch = Callable[[str], object]  # receives an operator's name before each call

# Operators of a student's own cells: what networks call, and what is called while no guard listens.
USED = {
    f"aten::{name}{end}"
    for name in ("convolution", "native_layer_norm", "native_batch_norm", "max_pool2d_with_indices", "avg_pool2d",
                 "_log_softmax", "_softmax", "nll_loss", "mse_loss", "gelu", "embedding", "embedding_dense")
    for end in ("", "_forward", "_backward", "_backward_data")
}  # fmt: skip


def matching(patterns: tuple[str, ...], key: Hashable) -> list[str]:
    """Return the operators named by patterns with `::`, except those that only call others, whose doors come later.

    An operator that only calls others is returned if a pattern is its name, without `*`. `key` changes with imports.
    """
    wanted = tuple(pattern for pattern in patterns if "::" in pattern)
    return _matching(_names((key, len(torch.ops.loaded_libraries))), wanted) if wanted else []


@functools.lru_cache(maxsize=1)  # torch rebuilds the list of all names, which takes milliseconds
def _names(_: Hashable) -> frozenset[str]:
    """Return the names of all operators; asked again after an import or a newly loaded operator library."""
    return frozenset(torch._C._dispatch_get_all_op_names())


@functools.lru_cache(maxsize=256)
def _matching(names: frozenset[str], patterns: tuple[str, ...]) -> list[str]:
    matches = re.compile("|".join(map(fnmatch.translate, patterns))).match
    found = [name for name in names if matches(name.partition(".")[0])]
    return [
        name
        for name in found
        if (name.partition(".")[0] in patterns if _has_kernel(name, COMPOSITE) else computes(name))
    ]


@functools.cache  # asked before the first door is put in, which is such a kernel, too
def computes(name: str) -> bool:
    return not _has_kernel(name, DOOR)


class Watcher:
    """Lets `listeners` know of calls of an operator.

    Registering a kernel takes microseconds, and an exercise watches hundreds of operators. So a watcher stays in the
    dispatcher when it has no listener, unless the operator is called then: a student's own training loses no time.
    """

    def __init__(self, name: str):
        self.listeners: list[Watch] = []
        namespace, _, rest = name.partition("::")
        # no `torch.library.Library`: Python's table of finalizers would show that to everyone
        self.library = _library("IMPL", namespace, "", __file__, 0)
        tell = functools.partial(_tell, self.listeners)  # torch keeps it, and with a watcher in it both would stay
        for kernel, key, with_keyset in _kernels(name, tell):
            self.library.impl(rest, key, kernel, with_keyset)


def _tell(listeners: list[Watch], name: str) -> None:
    if not listeners:
        USED.add(name)
    for listen in listeners:
        listen(name)


_kept: dict[str, Watcher] = {}


def watch(name: str, listen: Watch) -> None:
    """Let `listen` know of calls of the operator `name` until `leave`."""
    if name not in _kept:
        _kept[name] = Watcher(name)
    _kept[name].listeners.append(listen)


def leave(name: str, listen: Watch) -> None:
    listeners = _kept[name].listeners
    listeners.remove(listen)
    if not listeners and name in USED:
        del _kept[name]  # torch removes its kernels when it is freed


def _kernels(name: str, tell: Watch) -> Iterator[tuple[Callable, str, bool]]:
    """Yield what a library's `impl` takes, so that `tell` knows of calls of `name`."""
    operator, is_composite = _known(name)

    def kernel(keys, *args, **kwargs):
        tell(name)
        return operator.redispatch(keys & BEYOND, *args, **kwargs)

    def composite(*args, **kwargs):
        tell(name)
        return operator.decompose(*args, **kwargs)

    if is_composite:
        for key in FIRST:
            yield composite, key, False
    else:
        yield kernel, DOOR, True


@functools.cache  # each check watches hundreds
def _known(name: str) -> tuple[Any, bool]:
    """Return torch's operator of that name, and whether it only calls others."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    return operator, _has_kernel(name, COMPOSITE)


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
