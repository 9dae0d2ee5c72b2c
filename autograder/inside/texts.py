"""Keep the text of libraries from answers: points are for code of one's own, not for a copy that has no doors."""

import errno
import os
from types import FrameType

from .compilers import READERS

SOURCES = (".py", ".pyc")
PASS_ON = ("torch/_sources.py", "torch/_jit_internal.py")  # they read a function's text for their caller
HIDDEN = "Your code reads a library's text, which grading does not show"


class Texts:
    """Judges the audit event "open"; `ours` and `installed` are folders of libraries."""

    def __init__(self, ours: tuple[str, ...], installed: tuple[str, ...]):
        self.ours, self.stdlib = ours, tuple(path for path in installed if "site-packages" not in path)
        self.hidden = (*ours, *(path for path in installed if "site-packages" in path))

    def opened(self, event: str, args: tuple, frame: FrameType) -> None:
        """Raise PermissionError if an answer opens a library's code; `linecache` then shows no line of it."""
        path = args[0] if args else None
        if not isinstance(path, str | bytes):
            return
        file = os.path.realpath(os.fsdecode(path))
        if file.endswith(SOURCES) and file.startswith(self.hidden) and not self.may_read(frame):
            raise PermissionError(errno.EACCES, HIDDEN, file)

    def may_read(self, frame: FrameType | None) -> bool:
        """Whether the import system, a compiler, we, or a library while it is imported read, for whatever code."""
        imports = False
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith("<frozen importlib"):
                imports = imports or frame.f_code.co_name == "exec_module"
            elif not self.is_stdlib(file) and not file.endswith(PASS_ON):
                if imports or file.startswith((*self.ours, *READERS)):
                    return True
                if not file.startswith(self.hidden):
                    return False
            frame = frame.f_back
        return imports

    def is_stdlib(self, file: str) -> bool:
        return file.startswith(self.stdlib) and "site-packages" not in file
