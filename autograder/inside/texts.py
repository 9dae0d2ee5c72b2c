"""Keep the text of libraries from answers: points are for code of one's own, not for a copy that has no doors."""

import errno
import sys
from types import FrameType

from autograder.boundary.own import path as paths

from .compilers import READERS

SOURCES = (".py", ".pyc")
PASS_ON = ("torch/_sources.py", "torch/_jit_internal.py")  # they read a function's text for their caller
HIDDEN = "Your code reads a library's text, which grading does not show"
UNNAMED = "Grading opens a file by its name: give FileIO str(path)"


ENCODING, ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def as_opened(path: str | bytes) -> str:
    """Return a path as C reads it, whatever methods the class of an answer's gives it."""
    return bytes.decode(str.encode(path, ENCODING, ERRORS) if isinstance(path, str) else path, ENCODING, ERRORS)


class Texts:
    """Judges the audit event "open"; `ours` and `installed` are folders of libraries."""

    def __init__(self, ours: tuple[str, ...], installed: tuple[str, ...]):
        self.ours, self.stdlib = ours, tuple(path for path in installed if "site-packages" not in path)
        self.hidden = (*ours, *(path for path in installed if "site-packages" in path))

    def opened(self, event: str, args: tuple, frame: FrameType) -> None:
        """Raise PermissionError if an answer opens a library's code, so that `linecache` shows no line of it, or a file
        that it does not name."""
        path = args[0] if args else None
        kind = type(path)  # whatever it says that its class is
        if path is None or issubclass(kind, int):
            return
        if not issubclass(kind, str | bytes):  # `FileIO` has asked it for its name, which may be another one now
            if not self.may_read(frame):
                raise PermissionError(errno.EACCES, UNNAMED)
            return
        file = paths.realpath(as_opened(path))
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
