"""Notification of `storage.resize_`, which no dispatch mode sees: sharded parameters allocate and free memory with
it."""

import functools
import threading
from collections.abc import Callable

import torch

from hpcdl.memory.opaque import opaque

Watcher = Callable[[torch.UntypedStorage], None]

_original = torch.UntypedStorage.resize_
_watchers: list[Watcher] = []
_lock = threading.Lock()


@functools.wraps(_original)
def _resize_and_notify(storage: torch.UntypedStorage, size: int):
    result = _original(storage, size)
    for watcher in tuple(_watchers):
        watcher(storage)
    return result


_shown = opaque(_resize_and_notify)


def watch_resizes(watcher: Watcher) -> Callable[[], None]:
    """Call `watcher(storage)` after each `resize_`, in any thread; return a function that ends that.

    torch's method is wrapped while there are watchers, and restored afterwards.
    """
    with _lock:
        _watchers.append(watcher := opaque(watcher))
        # No type foresees that a method is replaced, here and below.
        torch.UntypedStorage.resize_ = _shown  # type: ignore[method-assign]  # see above
    return functools.partial(_end, watcher)


def _end(watcher: Watcher) -> None:
    with _lock:
        _watchers.remove(watcher)
        if not _watchers:
            torch.UntypedStorage.resize_ = _original  # type: ignore[method-assign]  # put back
