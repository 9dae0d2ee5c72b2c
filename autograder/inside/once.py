"""Let a library's module run once, under its own name: the doors are before its functions there, and only there.

A second copy of `torch/optim/sgd.py` in a module of a student's would have functions without doors, as would the
functions that were kept from before a module was loaded again.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, ModuleType

from .packages import by_others

BARRED = "hpcdl"
IMPORT, CALLS = "<frozen importlib", "_call_with_frames_removed"  # where Python's import system runs a module
INTERPRETER = os.path.join("runtime", "interpreter.py")
LOADS = "exec_module"
KNOWN = "autograder.modules"  # event: which modules have been imported, in a list
MOVED = ("distutils",)  # setuptools has it under another name


class Once:
    """Judges the audit event "exec"; `ours` and `installed` are folders, `ours` of modules that may be reloaded.

    `denies(BARRED)` says whether hpcdl is closed, `denies(name)` whether an exercise forbids a module: an answer may
    have taken our finders out of `sys.meta_path`.
    """

    def __init__(self, ours: tuple[str, ...], installed: tuple[str, ...], denies: Callable[[str], bool]):
        self.ours, self.libraries, self.denies = ours, (*ours, *installed), denies
        modules = list(sys.modules.items())
        self.known = [(name, module) for name, module in modules if isinstance(module, ModuleType)]
        self.complete = {str(vars(module).get("__file__")) for _, module in self.known}
        self.begun: dict[str, dict] = {}  # file -> the names of its module

    def executed(self, event: str, args: tuple, frame: FrameType) -> str | None:
        """Return the name of what is refused: a copy of a module, or a second run of it."""
        code = args[0] if args else None
        if type(code) is not CodeType:
            return None
        file = code.co_filename
        if code.co_name != "<module>":  # of a function, or a part of one
            return event if file.startswith(self.libraries) and is_answers(frame, self.libraries) else None
        if not file.startswith(self.libraries) or frame.f_code.co_filename.startswith(self.ours):
            return None
        if (triton := folder_of_triton(frame)) and file.startswith((*self.ours, triton)):
            return None
        names = names_of(frame)
        name = str(names.get("__name__"))
        module, loader = sys.modules.get(name), importer(frame)
        if module is None and names and is_library_loader(loader, self.libraries):
            module = module_of(frame)
        if module is None or vars(module) is not names or not belongs(name, file):
            return f"a copy of {Path(file).name}"
        self.settle()
        if file in self.complete and not file.startswith(self.ours):
            return f"importlib.reload({name})"
        is_barred = loader is not None and loader.f_code.co_filename.startswith(self.ours)
        if name.partition(".")[0] == BARRED and not is_barred and self.denies(BARRED):
            return f"a copy of {Path(file).name}"
        self.known.append((name, module))
        self.begun[file] = names
        return name if self.denies(name) and not by_others(name) else None

    def answer(self, event: str, args: tuple, frame: FrameType) -> None:
        """Add to the event's list all modules of Python's that have been imported."""
        if args and type(args[0]) is list:
            args[0].extend(self.known)

    def settle(self) -> None:
        """Note which modules have run to their end since; those that raised may run once more."""
        for file, names in list(self.begun.items()):
            module = sys.modules.get(str(names.get("__name__")))
            found = module is not None and vars(module) is names
            if found and getattr(names.get("__spec__"), "_initializing", False):
                continue
            del self.begun[file]
            if found:
                self.complete.add(file)


def is_answers(frame: FrameType, libraries: tuple[str, ...]) -> bool:
    return not frame.f_code.co_filename.startswith((*libraries, "<frozen "))


def folder_of_triton(frame: FrameType) -> str:
    """Return Triton's folder if its interpreter runs: it compiles its own functions and kernels, one by one."""
    file = frame.f_code.co_filename
    return file.removesuffix(INTERPRETER) if file.endswith(f"{os.sep}triton{os.sep}{INTERPRETER}") else ""


def importer(frame: FrameType | None) -> FrameType | None:
    """Return the frame that called Python's import system; for a module of hpcdl, the loader that puts in doors."""
    while frame is not None and frame.f_code.co_filename.startswith(IMPORT):
        frame = frame.f_back
    return frame


def is_library_loader(frame: FrameType | None, libraries: tuple[str, ...]) -> bool:
    """Whether a library itself loads a module without registering it first, as Triton does."""
    return frame is not None and frame.f_code.co_filename.startswith(libraries) and LOADS in frame.f_code.co_names


def module_of(frame: FrameType) -> ModuleType | None:
    """Return the module that a loader runs, from the frame of its `exec_module`."""
    found = frame.f_back.f_locals.get("module") if frame.f_back is not None else None
    return found if isinstance(found, ModuleType) else None


def names_of(frame: FrameType) -> dict:
    """Return the names of the module that Python's import system runs in this frame, or none."""
    called = frame.f_locals.get("args") if frame.f_code.co_name == CALLS else None
    is_import = frame.f_code.co_filename.startswith(IMPORT)
    return called[1] if is_import and type(called) is tuple and len(called) == 2 and type(called[1]) is dict else {}


def belongs(name: str, file: str) -> bool:
    """Whether a module `a.b.c` belongs in `file`: in `.../a/b/c.py` or `.../a/b/c/__init__.py`."""
    path = file.removesuffix(".py").removesuffix(f"{os.sep}__init__")
    return name.startswith(MOVED) or path.endswith(f"{os.sep}{name.replace('.', os.sep)}")
