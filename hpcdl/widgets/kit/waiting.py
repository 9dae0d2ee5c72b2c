"""What a lab's cell says until a student's function behind it is written or fixed, or a guess is made."""

import contextlib
import linecache
import sys
import traceback
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType

from hpcdl import points
from hpcdl.comm import RankError
from hpcdl.comm.location import line_at
from hpcdl.interrupt import alarm
from hpcdl.saying import sentences

PATIENCE = 30.0  # seconds for a cell that builds on something wrong, which may never end; right ones take up to ten


class Waiting(Exception):  # noqa: N818 - no error: something is still to be done
    """A cell cannot run yet, and the text says what to do first."""


class TooLong(BaseException):
    """A cell is stopped."""


_blocks: ContextVar[int] = ContextVar("blocks", default=0)  # of `when_solved` around what runs now


def is_waiting_allowed() -> bool:
    """Return whether a `when_solved` is around what runs now, and would say what a `Waiting` says."""
    return _blocks.get() > 0


@contextlib.contextmanager
def when_solved():
    """Run the block; where it meets an unsolved exercise, or a guess not made, print a sentence and no traceback.

        with when_solved():
            plt.plot(gradient_descent(grad, w0, lr=0.1, steps=20))

    So it is with any other exception while the last check of an exercise found a mistake, and with a cell that uses
    what is wrong and does not end. Where all that was checked is right the exception passes: its traceback says where.
    """
    block = sys._getframe(2)
    limit = alarm(PATIENCE, TooLong(f"stopped after {PATIENCE:g} s")) if wrong_in(block) else contextlib.nullcontext()
    depth = _blocks.get()
    _blocks.set(depth + 1)
    try:
        with limit:
            yield
    except Waiting as waiting:
        sentences(waiting)
    except (Exception, TooLong) as error:
        if not (sentence := said(error)):
            raise
        sentences(sentence)
    finally:
        _blocks.set(depth)


def passed(exercise: str) -> None:
    """Wait for the checks of `exercise` ("slug.name"): for a cell to which a wrong answer would do harm.

    Such as a kernel that writes beyond its tensors: it would end the notebook's own kernel. While the last check found
    a mistake, `when_solved` says so and the rest of its block does not run.
    """
    if exercise in points.unsolved:
        name = exercise.partition(".")[2]
        raise Waiting(f"Waiting for your {name} to pass its checks: mend it, check it, then run this cell again.")


def said(error: BaseException) -> str:
    """Return what to do about `error`, which a cell of the lab met; empty where nothing is known to be wrong."""
    cause = error.__cause__ if isinstance(error, RankError) else error  # one of several ranks met it
    if isinstance(cause, NotImplementedError):
        return waiting_for(cause)
    return mistaken(error) if points.unsolved else ""


def waiting_for(error: NotImplementedError) -> str:
    """Return the sentence that names the unsolved function."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    unsolved = frame.f_code.co_qualname  # `Dual.log` says more than `log`
    return f"Waiting for your {unsolved}: solve its exercise above, run its cell, then run this one again."


def mistaken(error: BaseException) -> str:
    """Return the sentences that say what happened, where in the notebook, and what to fix first."""
    frames = [(f, line) for f, line in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename != __file__]
    block = frames[0][0]
    functions = [f"`{name}`" for exercise in (wrong_in(block) or points.unsolved).values() for name in exercise]
    them = "it" if len(functions) == 1 else "them"
    return (
        f"{type(error).__name__}: {error}{_place(block, frames)}\n"
        f"{', '.join(functions)}: not all checks pass yet, and this cell builds on {them}. "
        f"Mend {them} first, then run this cell again."
    )


def wrong_in(block: FrameType) -> dict[str, tuple[str, ...]]:
    """Return the exercises in which the last check found a mistake, with their functions, that a cell uses."""
    used = _names_used(block.f_code, block.f_globals) if points.unsolved else set()
    return {exercise: functions for exercise, functions in points.unsolved.items() if used.intersection(functions)}


def _place(block: FrameType, frames: list[tuple[FrameType, int]]) -> str:
    """Return the innermost function of the notebook that was running, with its line."""
    own = [(frame, line) for frame, line in frames if frame.f_globals is block.f_globals and frame is not block]
    if not own:
        return ""
    frame, line = own[-1]
    line = line or line_at(frame.f_code, frame.f_lasti)
    source = linecache.getline(frame.f_code.co_filename, line).strip()
    return f"\nIn your {frame.f_code.co_qualname}, line {line} of its cell: {source}"


def _names_used(code: CodeType, namespace: dict) -> set[str]:
    """Return the names in `code`, and in the functions and classes of the notebook that these name, and so on."""
    names: set[str] = set()
    todo = [code]
    while todo:
        code = todo.pop()
        todo += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        for name in set(code.co_names) - names:
            names.add(name)
            found = namespace.get(name)
            methods = vars(found).values() if isinstance(found, type) else [found]
            todo += [m.__code__ for m in methods if isinstance(m, FunctionType) and m.__globals__ is namespace]
    return names
