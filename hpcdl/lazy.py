"""Lazy imports, what an interruption must not cut short, and whether an import is in progress."""

import _weakrefset
import contextlib
import importlib
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterable
from types import CodeType, FrameType, FunctionType
from typing import TypeVar, cast


def exports(package: str, homes: dict[str, str]) -> tuple[list[str], Callable, Callable]:
    """`__all__`, `__getattr__` and `__dir__` of `package`, of whose names `homes` says in which module each is."""
    names = sorted(homes)

    def find(name: str):
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return names, find, lambda: names


def repair_imports(before: set[str]) -> None:
    """Undo imports that were cut short since `before`, the modules that were whole: the next import begins again.

    Python forgets the package that was interrupted, but not its modules: they would be missing in the next one.
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
    """Import torch's compiler, as torch's optimizers do when the first of them is made: it takes seconds.

    Import it before a clock runs, which could stop it halfway, and before several threads ask for it, since all but one
    would find it half imported.
    """
    import_whole(COMPILER)


_imports: list[threading.Thread] = []  # in progress, also those whose caller was interrupted


def import_whole(*names: str) -> None:
    """Import modules in a thread of its own: whatever interrupts the caller cannot leave a module half imported.

    An import whose caller was interrupted continues. The next call waits for its end.
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
    """Whether the module `name` is there, and whole."""
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


SLOW = "rfc3987_syntax"


def leave_out_slow() -> None:
    """For a program of our own: let jsonschema do without a package whose import takes longer than all others.

    Where it is installed (as it is with Jupyter's server), jsonschema, and so nbformat, imports it to check addresses
    by RFC 3987, a format that no schema of theirs has; to build its grammar takes 1.3 s. To jsonschema it is optional.
    """
    sys.modules.setdefault(SLOW, None)  # type: ignore[arg-type]  # None: Python says that it is not installed


IMPORTER = "<frozen importlib._bootstrap>"
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
# The innermost frame is one of these only where a block's `with` has not yet been entered, or not yet been left.
ENTERS_OR_LEAVES = tuple(
    cast(FunctionType, vars(contextlib._GeneratorContextManager)[name]).__code__ for name in ("__enter__", "__exit__")
)
FINALIZERS = (weakref.__file__, _weakrefset.__file__)
PATIENCE, OWN_PATIENCE = 60.0, 10.0  # seconds an import may take to end: of a library, of a module of the user's own

F = TypeVar("F", bound=Callable)
_whole: dict[int, CodeType] = {}  # by identity


def whole(function: F) -> F:
    """Let an interruption wait until `function` returns, or yields: for milliseconds that must not be half done."""
    code = cast(FunctionType, function).__code__
    _whole[id(code)] = code
    return function


def is_importing(frame: FrameType | None) -> bool:
    """Whether `frame` is inside an import: an exception raised there leaves the module half imported, for good.

    Not only an `import` of the program's own: the first `y.backward(dy)` makes torch import sympy.
    """
    return import_patience(frame) > 0


def import_patience(frame: FrameType | None) -> float:
    """How many seconds an interruption of `frame` should wait for the import in progress; 0 if there is none.

    Also wait for what runs when an object goes, since an exception there is printed and lost; for what is `whole`; and
    for a `with` that has not yet entered its block, or not yet left it.
    """
    if frame is not None and frame.f_code in ENTERS_OR_LEAVES:
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
