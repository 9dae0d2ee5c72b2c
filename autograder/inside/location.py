"""Which line of the student's own code is being run, or raised: what a report shows of it."""

import linecache
import os
import re
import sys
from types import CodeType, FrameType

from hpcdl.comm.location import OURS, line_at

REFERENCE = "reference"  # the label of code that is not the student's, and whose lines nobody is shown
OF_REFERENCE = f"<{REFERENCE}>"
ROOTS = sorted({os.path.dirname(OURS[0].rstrip(os.sep)), sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix)})
OF_MACHINE = re.compile(f"(?:{'|'.join(map(re.escape, ROOTS))})(?:/[^\\s'\":,;)]+)*")
OF_OURS = re.compile(r"\b(?:hpcdl|autograder)/[\w/]+\.py\b|site-packages/|\b(?:desk|watcher|peer|worker)\.py\b")


def without_paths(text: str) -> str:
    """Return `text` with a file's or folder's name in the place of its path on this machine."""
    return OF_MACHINE.sub(lambda match: os.path.basename(match[0].rstrip("/")), text)


def places_of_ours(text: str) -> list[str]:
    """Return the paths of this machine, and places in files of ours, that a text for students names."""
    return [*OF_MACHINE.findall(text), *OF_OURS.findall(text)]


def current_frame(namespace: dict) -> FrameType | None:
    """The innermost frame that runs code of `namespace`, a student's global names; None where none does."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not is_students(frame, namespace):
        frame = frame.f_back
    return frame


def is_students(frame: FrameType, namespace: dict) -> bool:
    """Whether a frame runs the student's own code, and not the reference's that stands in for a part of it."""
    return frame.f_globals is namespace and frame.f_code.co_filename != OF_REFERENCE


def is_of_reference(error: BaseException, namespace: dict) -> bool:
    """Whether `error` was raised in a function of the reference, or below it, and not in the student's own code."""
    found, step = False, error.__traceback__
    while step is not None:
        frame, step = step.tb_frame, step.tb_next
        if frame.f_globals is namespace:
            found = not is_students(frame, namespace)
    return found


def current_line(namespace: dict) -> dict:
    """Function, line and source of the student's line that is being run; {} where none is."""
    frame = current_frame(namespace)
    if frame is None:
        return {}
    return described(frame.f_code, frame.f_lineno or line_at(frame.f_code, frame.f_lasti), namespace)


def raised_at(error: BaseException, namespace: dict) -> dict:
    """The same of the deepest frame in the student's own code that `error` went through.

    Where that is in another function than the first, `via` is the line of the first.
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


def in_words(code: CodeType, line: int, namespace: dict) -> str:
    """`line 3 of mse_grad: return X.T @ error`"""
    source = described(code, line, namespace)["source"]
    return f"line {line} of {code.co_name}" + (f": {source}" if source else "")


def described(code: CodeType, line: int, namespace: dict) -> dict:
    source = linecache.getline(code.co_filename, line, namespace).strip()
    return {"function": code.co_name, "line": line, "source": source[:200]}
