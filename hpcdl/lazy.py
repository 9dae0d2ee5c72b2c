"""Lazy imports, code that must not be interrupted, and whether an import is in progress."""

import _weakrefset
import contextlib
import functools
import importlib
import inspect
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterable
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TypeVar, cast


def exports(package: str, homes: dict[str, str]) -> tuple[list[str], Callable, Callable]:
    """Return `__all__`, `__getattr__` and `__dir__` of `package`; `homes` maps each name to its module."""
    names = sorted(homes)

    def find(name: str):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return names, find, lambda: names


def repair_imports(before: set[str]) -> None:
    """Undo imports that were interrupted since `before` (the complete modules then): the next import starts again.

    Python forgets the interrupted package but not its submodules, which would be missing from the next import.
    """
    if any(map(is_importing, sys._current_frames().values())):
        return  # another thread's import is in progress, and whole
    new = {name for name, module in list(sys.modules.items()) if module is not None} - before
    for name in sorted(new):  # packages come before their modules
        package, _, child = name.rpartition(".")
        if not is_imported(name) or (package and package not in sys.modules):
            sys.modules.pop(name, None)
        elif package and not hasattr(sys.modules[package], child):
            setattr(sys.modules[package], child, sys.modules[name])


COMPILER = "torch._dynamo"
BACKWARD = "torch.fx.experimental.symbolic_shapes"  # `y.backward(dy)` imports it, and with it sympy


def import_compiler() -> None:
    """Import torch's compiler, which takes seconds; torch imports it when the first optimizer is made.

    Import it before a time limit starts, which could stop it halfway, and before several threads ask for it, since all
    but one would find it half imported.
    """
    import_whole(COMPILER)


@functools.cache
def without_compiler(optimizer: type) -> type:
    """Return a subclass of a torch optimizer that does the same, and does not import torch's compiler.

    torch's own methods import it to tell it that it must not compile them.
    """
    import torch

    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    bare = {name: inspect.unwrap(getattr(optimizer, name)) for name in names}
    step = torch.no_grad()(inspect.unwrap(optimizer.step))  # type: ignore[attr-defined]
    return type(optimizer.__name__, (optimizer,), {**bare, "step": step})


_imports: list[threading.Thread] = []  # in progress, even if the caller was interrupted


def import_whole(*names: str) -> None:
    """Import modules in a separate thread, so that interrupting the caller cannot leave a module half imported.

    If the caller is interrupted, the import continues, and the next call waits for its end.
    """
    missing = [name for name in names if not is_imported(name)]
    if not missing:
        return
    errors: list[Exception] = []
    thread = threading.Thread(target=_import, args=(missing, errors), name="import")
    _imports.append(thread)
    thread.start()
    for thread in list(_imports):
        thread.join()
        _imports.remove(thread)
    if errors:
        raise errors[0]


def _import(names: Iterable[str], errors: list[Exception]) -> None:
    try:
        for name in names:
            importlib.import_module(name)
    except Exception as error:  # for the caller to raise
        errors.append(error)


def is_imported(name: str) -> bool:
    """Return whether the module `name` is completely imported."""
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


SLOW = "rfc3987_syntax"


def hide_slow_imports() -> None:
    """Hide from jsonschema, in our own programs, an optional package that is slow to import.

    If it is installed (Jupyter's server brings it), jsonschema and so nbformat import it to check RFC 3987 addresses, a
    format that none of their schemas uses. Building its grammar takes 1.3 s.
    """
    sys.modules.setdefault(SLOW, None)  # type: ignore[arg-type]  # None: Python says that it is not installed


IMPORTER = "<frozen importlib._bootstrap>"
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
# The innermost frame is one of these only while a `with` block is being entered or left.
ENTERS_OR_LEAVES: list[CodeType] = []
FINALIZERS = (weakref.__file__, _weakrefset.__file__)
PATIENCE, OWN_PATIENCE = 60.0, 10.0  # seconds to wait for the import of a library, of a user's own module

F = TypeVar("F", bound=Callable)
_whole: dict[int, CodeType] = {}  # by identity


def whole(function: F) -> F:
    """Make interruptions wait until `function` returns or yields; for work of milliseconds that must not stop
    halfway."""
    code = cast(FunctionType, function).__code__
    _whole[id(code)] = code
    return function


def is_importing(frame: FrameType | None) -> bool:
    """Return whether `frame` is inside an import: an exception raised there leaves the module half imported for good.

    Not only the program's own `import` statements count: the first `y.backward(dy)` makes torch import sympy.
    """
    return import_patience(frame) > 0


def mark_contexts(module: ModuleType) -> None:
    """Let interruptions wait while a `with` block of this `contextlib` is being entered or left."""
    manager = vars(module)["_GeneratorContextManager"]
    ENTERS_OR_LEAVES.extend(cast(FunctionType, vars(manager)[name]).__code__ for name in ("__enter__", "__exit__"))


mark_contexts(contextlib)


def is_between(frame: FrameType | None) -> bool:
    """Return whether `frame` enters or leaves a `with` block: an exception there would skip its `finally`."""
    return frame is not None and (frame.f_code in ENTERS_OR_LEAVES or id(frame.f_code) in _whole)


def import_patience(frame: FrameType | None) -> float:
    """Return how many seconds an interruption of `frame` should wait for the import in progress, or 0.

    Also wait for finalizers, since an exception there is printed and lost; for functions marked `whole`; and while a
    `with` block is being entered or left.
    """
    if is_between(frame):
        return OWN_PATIENCE
    file = ""  # of the module that is being imported
    while frame is not None:
        code = frame.f_code
        if type(code) is not CodeType:  # the frame of another thread, which has ended meanwhile
            return 0.0
        if code.co_name == "__del__" or code.co_filename in FINALIZERS or id(code) in _whole:
            return OWN_PATIENCE
        if code.co_filename == IMPORTER:
            return PATIENCE if not file or file.startswith((*LIBRARIES, "<frozen")) else OWN_PATIENCE
        if code.co_name == "<module>":
            file = code.co_filename
        frame = frame.f_back
    return 0.0
