"""Close packages that no right answer needs: whatever is installed beside torch, NumPy, pandas and compilers.

The pattern `OTHERS` stands for all of them; `TOOLS` and `STANDARD` are parts of torch and of Python that could be an
answer. Answers may import or call neither; libraries may, for their own use: torch imports SymPy for its compiler.

In grading, doors are before the functions of all such packages that are imported. A notebook has imported thousands
of such functions, for its pictures and its kernel: there doors are only before what the answer names (`named_in`).
"""

import os
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from importlib.machinery import PathFinder

from .compilers import IMPORTS, by_compiler, folders
from .families import OTHERS, STANDARD, TOOLS
from .library import imports, is_below
from .owners import LIBRARIES

OPEN = ("torch", "numpy", "pandas", "numba", "llvmlite", "triton", "hpcdl", "autograder", "IPython", "ipywidgets",
        "tqdm", "rich", "typing_extensions")  # fmt: skip
APART = ("scipy", "sklearn")  # families of their own
SITES = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")})
ROOTS = (*SITES, os.path.join(sysconfig.get_path("stdlib"), ""))
UTILITIES, FINDS = "<frozen importlib.util>", "find_spec"
SHAPES = re.compile(r"torch\._prims\.\w+_meta")  # they compute no numbers: torch asks them wherever it plans
NAME = re.compile(r"([^\W\d]\w*)(\.py|\..*\.so|\.pyd)?")


def _installed() -> Iterator[str]:
    """Yield the names of installed packages, and of those that they bring along and may put on Python's path."""
    for site in SITES:
        inner = [os.path.join(site, name, "_vendor") for name in os.listdir(site)]
        for folder in (site, *filter(os.path.isdir, inner)):
            yield from (found[1] for name in os.listdir(folder) if (found := NAME.fullmatch(name)))


OTHER = frozenset(_installed()) - {*OPEN, *APART, *sys.stdlib_module_names, "__pycache__", "__init__"}
HELPERS, COMPILER = folders(*OPEN), folders("torch/_dynamo")
LENT = (*TOOLS, *STANDARD)  # libraries may call these for themselves
PLACES = tuple(os.path.join(root, name.replace(".", os.sep)) for root in ROOTS for name in LENT)


def is_other(name: str) -> bool:
    return name.partition(".")[0] in OTHER


def is_closed(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether patterns close a module or function with this name to answers."""
    return is_below(name, *patterns) or (OTHERS in patterns and is_other(name))


@lru_cache(maxsize=256)
def one_closed(names: frozenset[str], patterns: tuple[str, ...]) -> str:
    """Return one of the names that the exercise's own patterns close; empty if they close none."""
    return min((name for name in names if is_below(name, *_strict(patterns))), default="")


def by_others(name: str, patterns: tuple[str, ...] = ()) -> bool:
    """Whether a compiler, or for packages and tools any library, imports or calls this closed name for itself."""
    if is_below(name, *_strict(patterns)) or not (is_other(name) or is_below(name, *LENT)):
        return by_compiler(name.partition(".")[0])
    return by_library(name)


@lru_cache(maxsize=64)
def _strict(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return what is closed to libraries that work for an answer, too."""
    return tuple(pattern for pattern in patterns if pattern not in (OTHERS, *LENT))


def by_library(name: str) -> bool:
    """Whether a library that answers may use calls or imports `name` for itself, not what an answer handed to it."""
    frame: types.FrameType | None = sys._getframe(1)
    outermost = None  # of the closed packages' own frames
    if name.endswith(f".{FINDS}"):  # the import system asks finders of packages, too
        return True
    while frame is not None and (is_own(file := frame.f_code.co_filename) or IMPORTS.search(file) or is_lazy(frame)):
        if file == UTILITIES and frame.f_code.co_name == FINDS and frame.f_locals.get("name") == name:
            return True  # whether a package is there: nothing is imported
        outermost = frame if is_own(file) else outermost
        frame = frame.f_back
    entry = f"{outermost.f_globals.get('__name__')}.{outermost.f_code.co_name}" if outermost else name
    if SHAPES.fullmatch(entry):
        return True
    compiles = frame is not None and frame.f_code.co_filename.startswith(COMPILER)  # it has tables of all names
    while frame is not None and ((file := frame.f_code.co_filename).startswith(COMPILER) or IMPORTS.search(file)):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.startswith(HELPERS) or compiles:
        return frame is not None and frame.f_code.co_filename.startswith(HELPERS)
    of, _, called = entry.rpartition(".")
    names = {called, entry.partition(".")[0]} | ({of.rpartition(".")[2]} if outermost else set())
    return called.startswith("__") or not (names - {"torch"}).isdisjoint(_known(frame))


def is_lazy(frame: types.FrameType) -> bool:
    """Whether a library imports a module there because someone names it."""
    return frame.f_code.co_name == "__getattr__" and frame.f_code.co_filename.startswith(HELPERS)


def is_own(file: str) -> bool:
    """Whether a file belongs to closed packages or tools."""
    return file.startswith(PLACES) or (file.startswith(SITES) and not file.startswith(HELPERS))


def _known(frame: types.FrameType) -> set[str]:
    """Return the names that a frame's code uses, and those of its module."""
    return {*frame.f_globals, *(part for name in frame.f_code.co_names for part in name.split("."))}


def is_installed(function: types.FunctionType) -> bool:
    """Whether a function in a module with a package's name is not the student's."""
    return not is_other(str(function.__module__)) or function.__code__.co_filename.startswith(LIBRARIES)


def is_students(name: str) -> bool:
    """Whether a module with a package's name is a file of the student's."""
    if not is_other(name):
        return False
    spec = PathFinder.find_spec(name.partition(".")[0])
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec is not None else []
    return not any(str(place).startswith(SITES) for place in places)


def places(dotted: tuple[str, ...], named: frozenset[str] | None) -> tuple[str, ...]:
    """Return whose functions get doors: of `named` in a notebook, else of all imported ones."""
    if named is None:
        return (*dotted, *_imported(imports())) if OTHERS in dotted else dotted
    return (*_strict(dotted), *sorted(name for name in named if is_closed(name, dotted)))


@lru_cache(maxsize=4)
def _imported(_: Hashable) -> tuple[str, ...]:
    """Return the other packages that are imported."""
    return tuple(sorted(OTHER & {name.partition(".")[0] for name in list(sys.modules)}))


def named_in(function: Callable, namespace: dict) -> set[str]:
    """Return the other packages and tools that a student's function names, or functions and classes that it uses."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list = [function]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.CodeType):
            waiting += [namespace[name] for name in value.co_names if name in namespace]
            waiting += [const for const in value.co_consts if isinstance(const, types.CodeType)]
            found.update(name for name in value.co_names if is_other(name))
            found.update(tool for tool in LENT if tool.rpartition(".")[2] in value.co_names)
        elif getattr(value, "__module__", None) == namespace.get("__name__"):
            waiting += _codes(value)
        else:
            name = str(getattr(value, "__name__" if isinstance(value, types.ModuleType) else "__module__", ""))
            found.update([name] if is_other(name) else [tool for tool in LENT if is_below(name, tool)])
    return {name.partition(".")[0] if is_other(name) else name for name in found}


def _codes(value: object) -> list:
    """Return the code of a function, or what a class holds."""
    if isinstance(value, type):
        return [getattr(part, "__func__", getattr(part, "fget", part)) for part in vars(value).values()]
    return [value.__code__] if isinstance(value, types.FunctionType) else [type(value)]
