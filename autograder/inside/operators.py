"""Find torch's operators by patterns, and put a watcher before each in the dispatcher."""

import fnmatch
import functools
import re
from collections.abc import Callable, Hashable, Iterator

import torch
from torch._C import DispatchKey

# Above the kernels of each device and below autograd. Operators that compute have no kernel of their own here.
DOOR = "BackendSelect"
BEYOND = torch._C._dispatch_keyset_full_after(DispatchKey.BackendSelect)
COMPOSITE, FIRST = "CompositeImplicitAutograd", ("AutogradCPU", "CPU")  # keys by which calls of composites come

Watch = Callable[[str], object]  # receives an operator's name before each call


def matching(patterns: tuple[str, ...], key: Hashable) -> list[str]:
    """Return the operators named by patterns with `::`, except those that only call others, whose doors come later.

    An operator that only calls others is returned if a pattern is its name, without `*`. `key` changes with imports.
    """
    wanted = tuple(pattern for pattern in patterns if "::" in pattern)
    return _matching((key, len(torch.ops.loaded_libraries)), wanted) if wanted else []


@functools.lru_cache(maxsize=64)  # torch rebuilds the list of all names, which takes milliseconds
def _matching(_: Hashable, patterns: tuple[str, ...]) -> list[str]:
    """Return the matching operators; searched again after an import or a newly loaded operator library."""
    matches = re.compile("|".join(map(fnmatch.translate, patterns))).match
    found = [name for name in torch._C._dispatch_get_all_op_names() if matches(name.partition(".")[0])]
    return [
        name
        for name in found
        if (name.partition(".")[0] in patterns if _has_kernel(name, COMPOSITE) else not _has_kernel(name, DOOR))
    ]


def watchers(name: str, watch: Watch) -> Iterator[tuple[str, str, Callable, str, bool]]:
    """Yield what `torch.library.Library.impl` takes, after its namespace, so that `watch` knows of calls of `name`."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")

    def kernel(keys, *args, **kwargs):
        watch(f"{namespace}::{base}")
        return operator.redispatch(keys & BEYOND, *args, **kwargs)

    def composite(*args, **kwargs):
        watch(f"{namespace}::{base}")
        return operator.decompose(*args, **kwargs)

    if _has_kernel(name, COMPOSITE):
        for key in FIRST:
            yield namespace, rest, composite, key, False
    else:
        yield namespace, rest, kernel, DOOR, True


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
