"""Refuse copies of a library's functions: a copy of another name has no door.

Code of a library cannot run as an answer's: an answer makes no code object, and no function of a library's code; it
sets no function's code to that, and does not marshal it. Some libraries make such copies for their callers.
"""

from types import CodeType, FrameType

# Functions in these folders and files copy a function, or its code, for their caller.
COPIERS = (
    "alembic/testing/", "array_api_extra/testing/", "cloudpickle/", "ipyparallel/", "isomorphism/matchhelpers.py",
    "modulefinder.py", "torch/_dynamo/", "torch/_inductor/", "torch/fx/", "torch/nn/attention/flex_attention.py",
    "torch/testing/",
)  # fmt: skip
RENAMERS = ("ipyparallel/", "modulefinder.py")  # they make code of another file's name


class Copies:
    """Judges audit events; `libraries` are the beginnings of file names of code that is no answer's."""

    def __init__(self, libraries: tuple[str, ...]):
        self.libraries = libraries

    def has(self, value: object) -> bool:
        """Whether a value is code of a library."""
        return isinstance(value, CodeType) and value.co_filename.startswith(self.libraries)

    def new_code(self, event: str, args: tuple, frame: FrameType) -> str | None:
        return None if self.has(frame.f_code) and not of(frame, RENAMERS) else event

    def new_function(self, event: str, args: tuple, frame: FrameType) -> str | None:
        is_copy = self.has(args[0] if args else None)
        is_copy &= not self.has(frame.f_code) or (of(frame, COPIERS) and not self.imports(frame))
        return "types.FunctionType" if is_copy else None

    def imports(self, frame: FrameType | None) -> bool:
        """Whether a library makes copies while it is imported."""
        while frame is not None and self.has(frame.f_code):
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            frame = frame.f_back
        return False

    def dumped(self, event: str, args: tuple, frame: FrameType | None) -> str | None:
        """Refuse to marshal for an answer; an import may write a library's code to its cache."""
        while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            if frame.f_code.co_name == "get_code":
                return None
            frame = frame.f_back
        return None if frame is not None and self.has(frame.f_code) else event

    def loaded(self, event: str, args: tuple, frame: FrameType) -> str | None:
        return None if self.has(frame.f_code) else event


def of(frame: FrameType, parts: tuple[str, ...]) -> bool:
    """Whether a frame's file has one of these parts in its name."""
    return any(part in frame.f_code.co_filename for part in parts)
