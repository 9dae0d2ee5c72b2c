"""Hand out functions that lead nowhere: torch keeps hooks and weak references where anyone may read them."""

import functools
from collections.abc import Callable
from typing import Any


def opaque(function: Callable) -> Any:
    """Return a C callable that calls `function`, and shows no closure, globals or object behind it."""
    shown = functools.lru_cache(maxsize=0)(function)
    shown.__wrapped__ = None  # type: ignore[assignment]  # what it would show
    return shown
