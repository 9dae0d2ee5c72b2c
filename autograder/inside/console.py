"""Keep student code from waiting at the keyboard and from ending a notebook's kernel."""

import builtins
import contextlib
import sys
from collections.abc import Iterator

from hpcdl.lazy import whole

EXITS = ("exit", "quit")


class AskedError(BaseException):
    """The code asks for input; not an `Exception`, so that `except Exception` does not hide it."""


@contextlib.contextmanager
@whole
def nobody_there(namespace: dict) -> Iterator[None]:
    """Make `input` raise AskedError in the block, and IPython's `exit`, which ends the kernel, raise SystemExit."""
    asks, kept = builtins.input, {name: namespace[name] for name in EXITS if _ends_the_kernel(namespace.get(name))}
    builtins.input = _refuse
    namespace.update(dict.fromkeys(kept, sys.exit))
    try:
        yield
    finally:
        builtins.input = asks
        namespace.update({name: value for name, value in kept.items() if namespace.get(name) is sys.exit})


def _refuse(prompt: object = "", /) -> str:
    raise AskedError(
        "Your code asks for input(), as a debugger does, too, and no one answers while it is checked: take all values "
        "from the arguments."
    )


def _ends_the_kernel(value: object) -> bool:
    autocall = sys.modules.get("IPython.core.autocall")
    return autocall is not None and autocall.ExitAutocall in type(value).__mro__  # an answer may replace isinstance
