"""Protect the worker's process from student code, by Python's audit events.

The interpreter raises an event before it hands out a frame, a function's code or an object's referrers, before it
writes to foreign code and before it loads C code. A hook receives it, which cannot be removed or reached: no module,
closure, constant or frame holds it. It refuses an event that student code caused, and tells the grader at once. The
code's file name shows whose code it is; student code cannot be created with one of our file names, because that is
refused, too.

It is set only in a worker. In a notebook the kernel belongs to the student.
"""

import _thread
import gc
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .compiled import is_bypassed
from .copies import Copies
from .forbidden import ForbiddenCallError
from .location import OF_REFERENCE
from .once import KNOWN, Once
from .owners import (
    CODES,
    INSTALLED,
    LIBRARIES,
    OURS,
    code_of,
    is_library,
    is_of_judge,
    is_of_reference,
    is_ours,
    is_students,
)
from .shims import CALLBACKS, SHIM, SHIMS
from .texts import Texts

TEXTS = Texts(OURS, INSTALLED)
# Functions in these files return frames and code: then their caller counts, as for a function that reads `f_locals`.
INTROSPECTION = ("inspect.py", "bdb.py", "pdb.py", "trace.py", "cgitb.py", "pickle.py", "asyncio/base_tasks.py",
                 "torch/fx/proxy.py", "torch/fx/experimental/symbolic_shapes.py")  # fmt: skip
LOCALS = "f_locals"
# These read a caller's variables by name to write or compute with them, and return neither.
NAMES_ONLY = ("sympy/utilities/lambdify.py", "numpy/lib/_index_tricks_impl.py", "numpy/matrixlib/defmatrix.py",
              "torch/jit/_trace.py")  # fmt: skip
VARIABLES = "pandas/core/computation/scope.py"  # copies the variables of the caller of `df.query` and `df.eval`
TRACEBACK, LOGGING, NUMBA = "traceback.py", "logging/__init__.py", "numba/core/bytecode.py"
DISPATCH = ("_python_dispatch.py", "torch/_ops.py", "torch/library.py", "/contextlib.py")  # they work for their caller
CLOUDPICKLE = "cloudpickle.py"  # it takes a function's code apart, and builds another one of it
SIGNATURES = {(name, "inspect.py") for name in ("_signature_from_function", "_has_code_flag", "getfile")}
CLIBRARY = ("ctypes/__init__.py", "ctypes/util.py", "ctypes/_endian.py")

NEVER = ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._current_exceptions", "sys.addaudithook")
TRACING = ("sys.settrace", "sys.setprofile", "sys._current_frames", "sys.monitoring.register_callback")
FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
WRITTEN = ("__code__", "__defaults__", "__kwdefaults__", "__class__", "__bases__", "f_trace")
# CPython's own tests, other interpreters and stacks: C code that calls Python, or has memory or frames, without events
# that we hear. NumPy's tests: windows and convolutions in C.
INTERPRETERS = ("greenlet", "_xxsubinterpreters", "_xxinterpchannels", "_interpreters", "_interpchannels",
                "_interpqueues", "_testcapi", "_testinternalcapi", "_testlimitedcapi", "_testexternalinspection",
                "_testmultiphase", "_testbuffer", "_testclinic", "_xxtestfuzz", "_ctypes_test", "_remote_debugging",
                "_umath_tests", "_multiarray_tests", "_rational_tests", "_struct_ufunc_tests", "_simd")  # fmt: skip
SEAL = "autograder.seal"  # event: check that the machinery is unchanged
LEFT = "autograder.left"  # event: an answer has left this behind

Knock = Callable[[str], object]


def prepared(denies: Callable[[str], bool], changed: Callable[[], list[str]]) -> Callable[[Knock], None]:
    """Return a function that sets the hook in its process, for good: what it needs to know is collected here.

    `changed()` names changed parts of the machinery; `denies(name)` says whether this exercise forbids a C function.
    The function is given `report(name)`, which tells the grader what was refused.
    """
    judges = _judges(changed, denies)
    return lambda report: sys.addaudithook(_hook(report, judges))


def _hook(report: Knock, judges: "dict[str, Judge]") -> Callable[[str, tuple], None]:
    busy: set[int] = set()
    looking: set[int] = set()

    def hook(event: str, args: tuple) -> None:
        judge = judges.get(event)
        me = _thread.get_ident()
        if judge is None or me in looking:
            return
        collects, is_inner = gc.isenabled(), me in busy
        gc.disable()  # an answer's finalizers and callbacks would run in the middle of this
        busy.add(me)
        looking.add(me)
        try:
            frame = sys._getframe(1)
            is_own = is_inner and is_of_judge(frame)
            looking.discard(me)
            if not is_own and (name := judge(event, args, frame)) is not None:
                report(name)
                raise ForbiddenCallError(f"`{name}` is forbidden in this exercise")
        finally:
            if not is_inner:
                busy.discard(me)
            if collects:
                gc.enable()

    return hook


Judge = Callable[[str, tuple, Any], str | None]  # (event, arguments, raising frame) -> the name of what is refused


def _judges(changed: Callable[[], list[str]], denies: Callable[[str], bool]) -> dict[str, Judge]:
    def seal(event: str, args: tuple, frame: Any) -> str | None:
        return next(iter(changed()), None)

    once, copies = Once(OURS, INSTALLED, denies), Copies(LIBRARIES)

    def shim(event: str, args: tuple, frame: FrameType) -> str | None:
        name, caller = args[0], frame.f_back
        if name not in SHIMS or name in CALLBACKS:
            return name if denies(name) else None
        while caller is not None and caller.f_code.co_filename.endswith(DISPATCH):
            caller = caller.f_back
        return name if denies(name) and (caller is None or not is_library(caller.f_code)) else None

    return {
        **dict.fromkeys(NEVER, _never),
        **dict.fromkeys(TRACING, _tracing),
        "sys._getframe": _frame,
        "sys._getframemodulename": _frame,
        "object.__getattr__": _read,
        "object.__setattr__": _write,
        "object.__delattr__": _write,
        "code.__new__": copies.new_code,
        "function.__new__": copies.new_function,
        "marshal.dumps": copies.dumped,
        "marshal.load": copies.loaded,
        "marshal.loads": copies.loaded,
        "compile": _compiled,
        "exec": once.executed,
        KNOWN: once.answer,
        "import": _loaded,
        "open": TEXTS.opened,
        "ctypes.dlopen": _in_c,
        "ctypes.dlsym": _in_c,
        "ctypes.dlsym/handle": _in_c,
        "ctypes.call_function": _in_c,
        "ctypes.cdata": _in_c,
        "ctypes.cdata/buffer": _in_c,
        "ctypes.string_at": _in_c,
        "ctypes.wstring_at": _in_c,
        "ctypes.addressof": _in_c,
        SEAL: seal,
        LEFT: lambda event, args, frame: str(args[0]),
        SHIM: shim,
    }


def _never(event: str, args: tuple, frame: FrameType) -> str | None:
    return None if is_ours(frame) else event


def _tracing(event: str, args: tuple, frame: FrameType) -> str | None:
    if is_ours(frame):
        return None
    # The interpreter itself removes a trace function that raises, like a time limit's.
    tracing = getattr(sys.gettrace(), "__code__", None)
    return None if tracing is not None and tracing.co_filename.startswith(OURS) else event


def _asks(frame: FrameType | None, name: str) -> bool:
    """Whether a library's own code requests `name`, and does not pass on what it gets."""
    while frame is not None:
        code = frame.f_code
        if not is_library(code):
            return False
        if code.co_filename.endswith(TRACEBACK):
            return _keeps(frame)
        if code.co_filename.endswith(LOGGING):  # it finds its caller, and uses only name and line
            return frame.f_back is not None and frame.f_back.f_code.co_filename.endswith(LOGGING)
        if name not in code.co_names and code.co_name != "<module>":  # whose decorators are called by other names
            return False
        if not _passes_on(code):
            return True
        name, frame = code.co_name, frame.f_back
    return False


def _passes_on(code: CodeType) -> bool:
    """Whether a library's function may return the frames that it requests, or variables in them."""
    if LOCALS in code.co_names and not code.co_filename.endswith(NAMES_ONLY):
        return True
    return code.co_filename.endswith(INTROSPECTION)


def _keeps(frame: FrameType) -> bool:
    """Whether `traceback` was called for text: one of its generators would pass the frame on to the caller."""
    while frame.f_back is not None and frame.f_back.f_code.co_filename.endswith(TRACEBACK):
        frame = frame.f_back
    return not frame.f_code.co_flags & inspect.CO_GENERATOR or is_ours(frame.f_back)


def _frame(event: str, args: tuple, frame: FrameType) -> str | None:
    if is_library(frame.f_code) and frame.f_code.co_filename.endswith(VARIABLES) and not is_library(args[0].f_code):
        return None
    return None if _asks(frame, event.partition(".")[2]) else event


def _read(event: str, args: tuple, frame: FrameType) -> str | None:
    owner, name = args
    if name in FRAMES and not _asks(frame, name):
        return str(name)
    if name not in CODES:
        return None
    if is_of_reference(owner) and _for_answer(frame):
        return f"{_name(owner)}{name}"
    if (
        name in frame.f_code.co_names
        and is_library(frame.f_code)
        and not frame.f_code.co_filename.endswith(CLOUDPICKLE)
    ):
        return None
    return None if is_students(owner) or _compiles(frame) else f"{_name(owner)}{name}"


def _for_answer(frame: FrameType | None) -> bool:
    """Whether student code requests a function's code, by itself or by a library, for more than a signature."""
    if frame is not None and (frame.f_code.co_name, Path(frame.f_code.co_filename).name) in SIGNATURES:
        return False
    while frame is not None and is_library(frame.f_code):
        if frame.f_code.co_filename.startswith((*OURS, OF_REFERENCE)):
            return False
        frame = frame.f_back
    return True


def _compiles(frame: FrameType | None) -> bool:
    """Whether Numba itself requests the code of a function that it compiles."""
    name = ""
    while frame is not None and (frame.f_code.co_filename.endswith(NUMBA) or is_ours(frame)):
        name = name if is_ours(frame) else frame.f_code.co_name
        frame = frame.f_back
    return frame is not None and is_library(frame.f_code) and name in frame.f_code.co_names


def _name(owner: Any) -> str:
    parts = [getattr(owner, "__module__", None), getattr(owner, "__qualname__", None)] if code_of(owner) else []
    return "".join(f"{part}." for part in parts if type(part) is str)


def _write(event: str, args: tuple, frame: FrameType) -> str | None:
    owner, name, *value = args
    if name not in WRITTEN or is_ours(frame):
        return None
    if is_students(owner) and not (name == "__code__" and value and is_library(value[0])):
        return None
    while frame.f_back is not None and frame.f_code.co_name == "__setattr__" and is_library(frame.f_code):
        frame = frame.f_back  # the module's own way to set it
    return None if name != "__code__" and is_library(frame.f_code) and name in _all_names(frame.f_code) else str(name)


def _all_names(code: CodeType) -> tuple:
    return (*code.co_names, *code.co_consts)


def _compiled(event: str, args: tuple, frame: FrameType) -> str | None:
    """Allow code with a library's file name only if it is compiled from that file."""
    source, filename = (*args, None, None)[:2]
    if type(filename) is not str and issubclass(type(filename), str):  # it could answer for itself whose it is
        return None if is_library(frame.f_code) else event
    if type(filename) is not str or not filename.startswith(LIBRARIES) or is_ours(frame):
        return None
    if not is_library(frame.f_code):
        return event
    if frame.f_code.co_filename.startswith("<frozen importlib") and type(source) is bytes:
        try:
            return None if Path(filename).read_bytes() == source else event
        except OSError:
            return event
    return None


def _loaded(event: str, args: tuple, frame: FrameType) -> str | None:
    path = args[1] if len(args) > 1 else None
    for name in (str(args[0]), os.path.basename(str(path)).partition(".")[0]):
        if name.startswith(INTERPRETERS):
            return name
    return f"a copy of {Path(str(path)).name}" if is_bypassed(path, frame) else None


def _in_c(event: str, args: tuple, frame: FrameType) -> str | None:
    inner: FrameType | None = frame
    while inner is not None and inner.f_code.co_filename.endswith(CLIBRARY):
        inner = inner.f_back
    if inner is None or inner.f_code.co_filename.startswith((*OURS, "<frozen ")):
        return None
    return None if is_library(inner.f_code) and not TEXTS.is_stdlib(inner.f_code.co_filename) else event
