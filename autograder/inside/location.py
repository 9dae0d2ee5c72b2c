"""The line of the student's code that is running or that raised, for reports."""

import builtins
import linecache
import os
import re
import sys
import traceback
from pathlib import Path
from types import CodeType, FrameType

from hpcdl.comm.location import OURS, line_at

from . import absent

REFERENCE = "reference"  # the label of code that is not the student's; its lines are never shown
EXCEPTIONS = [x for x in vars(builtins).values() if isinstance(x, type) and issubclass(x, BaseException)]
OF_REFERENCE = f"<{REFERENCE}>"
ROOTS = sorted({os.path.dirname(OURS[0].rstrip(os.sep)), sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix)})
OF_MACHINE = re.compile(f"(?:{'|'.join(map(re.escape, ROOTS))})(?:/[^\\s'\":,;)]+)*")
OF_FRAMES = re.compile(f'^ *File "(?:{"|".join(map(re.escape, OURS))})[^"]*".*\n?', re.MULTILINE)
OF_OURS = re.compile(r"\b(?:hpcdl|autograder)/[\w/]+\.py\b|site-packages/|\b(?:desk|watcher|peer|worker)\.py\b")


def without_paths(text: str) -> str:
    """Return `text` with names instead of paths on this machine, without lines of a traceback that are ours."""
    return OF_MACHINE.sub(lambda match: os.path.basename(match[0].rstrip("/")), OF_FRAMES.sub("", text))


def places_of_ours(text: str) -> list[str]:
    """Return the machine's paths, and locations in our files, that a text for students contains."""
    return [*OF_MACHINE.findall(text), *OF_OURS.findall(text)]


def current_frame(namespace: dict) -> FrameType | None:
    """Return the innermost frame that runs code of `namespace`, a student's global names, or None."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not is_students(frame, namespace):
        frame = frame.f_back
    return frame


def is_students(frame: FrameType, namespace: dict) -> bool:
    """Whether a frame runs the student's own code, not the reference's replacement for part of it."""
    return frame.f_globals is namespace and frame.f_code.co_filename != OF_REFERENCE


def is_of_reference(error: BaseException, namespace: dict) -> bool:
    """Whether `error` was raised in or below a function of the reference, not in the student's code."""
    found, step = False, error.__traceback__
    while step is not None:
        frame, step = step.tb_frame, step.tb_next
        if frame.f_globals is namespace:
            found = not is_students(frame, namespace)
    return found


def current_line(namespace: dict) -> dict:
    """Return function, line and source of the student's running line, or {}."""
    frame = current_frame(namespace)
    if frame is None:
        return {}
    return described(frame.f_code, frame.f_lineno or line_at(frame.f_code, frame.f_lasti), namespace)


def raised_at(error: BaseException, namespace: dict) -> dict:
    """Return the same for the deepest frame of the student's code that `error` passed.

    If that is a different function from the first, `via` is the line in the first.
    """
    steps, step = [], error.__traceback__
    while step is not None:
        if is_students(step.tb_frame, namespace):
            code = step.tb_frame.f_code
            steps.append((code, step.tb_lineno or line_at(code, step.tb_lasti)))
        step = step.tb_next
    if not steps:
        return {}
    (first, line), (last, _) = steps[0], steps[-1]
    return {
        **described(*steps[-1], namespace),
        **({"via": in_words(first, line, namespace)} if first is not last else {}),
    }


def bases_of(error: BaseException) -> str:
    """Return the names of Python's own exceptions that `error` is, whatever name its class has."""
    return " ".join(kind.__name__ for kind in EXCEPTIONS if issubclass(type(error), kind))


def in_words(code: CodeType, line: int, namespace: dict) -> str:
    """`line 3 of mse_grad: return X.T @ error`"""
    source = described(code, line, namespace)["source"]
    return f"line {line} of {code.co_name}" + (f": {source}" if source else "")


def described(code: CodeType, line: int, namespace: dict) -> dict:
    source = linecache.getline(code.co_filename, line, namespace).strip()
    return {"function": code.co_name, "line": line, "source": source[:200]}


PROCESSES = ("multiprocessing", "subprocess", "concurrent.futures.process")
NO_PROCESSES = (
    "Your code starts a process, as a pool of processes or a program does, and grading starts none: compute it here or "
    "in threads."
)

NO_CHECKS = (
    "Your code imports the checks, and where it is graded there are none: leave out what comes from `autograder`."
)
NO_NETWORK = (
    "Your code opens a connection, and grading has no network: take the data from a file next to the notebook, or "
    "compute it."
)
PACKAGE = Path(__file__).parents[1]


def comes_from(error: BaseException, modules: tuple[str, ...]) -> bool:
    """Whether an operating system's error comes from one of these modules."""
    frames = traceback.walk_tb(error.__traceback__) if isinstance(error, OSError) else ()
    return any(str(frame.f_globals.get("__name__")).startswith(modules) for frame, _ in frames)


def is_history(error: BaseException) -> bool:
    """Whether an error is about a name that IPython binds to cells' outputs: `_`, `__`, `_12`."""
    return isinstance(error, NameError) and str(error.name).startswith("_") and not str(error.name).strip("_0123456789")


def is_of_checks(error: BaseException) -> bool:
    """Whether an error comes from a cell that imports the checks, which cannot be read here."""
    return isinstance(error, PermissionError) and str(error.filename).startswith(f"{PACKAGE}{os.sep}")


def text_of(error: BaseException) -> str:
    """Return an error's message for students."""
    try:
        if comes_from(error, PROCESSES):
            return NO_PROCESSES
        if comes_from(error, ("socket",)):
            return NO_NETWORK
        if is_history(error):
            return f"{error}. {absent.NO_OUTPUTS}"
        if is_of_checks(error):
            return NO_CHECKS
        return without_paths(str(error)[:2000])[:500]
    except Exception:
        return "(its message cannot be shown)"
