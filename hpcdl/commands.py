"""What every command of `hpcdl` and `autograder` does with an error: one sentence and an exit code, no traceback.

| exit code | what happened |
|---|---|
| 2 | an argument, a file or a folder cannot be used, or a package is missing |
| 70 | a mistake in the program; HPCDL_TRACEBACK=1 shows where |
| 130 | Ctrl-C |
| 143 | SIGTERM |
"""

import contextlib
import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

import hpcdl
from hpcdl.lazy import leave_out_slow

leave_out_slow()

OWN = ("hpcdl", "autograder")
NEXT = {
    errno.ENOSPC: "make room there, or choose another folder",
    errno.EDQUOT: "make room there, or choose another folder",
    errno.EFBIG: "make room there, or choose another folder",
    errno.EACCES: "choose another place, or ask its owner for the right",
    errno.EPERM: "choose another place, or ask its owner for the right",
    errno.EROFS: "choose a place that can be written",
    errno.ENOENT: "see whether it is spelt right",
    errno.EISDIR: "give a file",
    errno.ENOTDIR: "give a folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}


KEPT = "What was done is kept where the command keeps its work; run it again to go on"


class TerminatedError(BaseException):
    """The process was sent SIGTERM."""


class Commands(TyperGroup):
    """The commands of a program; an error in one of them ends it with a sentence on stderr."""

    def get_params(self, ctx: Any) -> list:
        return _without_types_of_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_types_of_flags(command.get_params(ctx))
        return command

    def invoke(self, context: Any) -> Any:
        _given[:] = [*getattr(context, "_protected_args", ()), *context.args]
        try:
            with _terminable():
                return super().invoke(context)
        except KeyboardInterrupt:
            _end_children()
            end(f"Interrupted. {KEPT}", 130)
        except TerminatedError:
            _end_children()
            end(f"Ended by SIGTERM. {KEPT}", 143)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if hasattr(error, "show") or os.environ.get("HPCDL_TRACEBACK"):  # a wrong argument says so itself
                raise
            end(*explained(error))


def _without_types_of_flags(params: list) -> list:
    """Let `--help` show no type beside an option that takes no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def version_of(program: str) -> Callable:
    """Return the callback of `--version`, which prints the program's name with its version and ends."""

    def show_version(show: bool) -> None:
        if show:
            typer.echo(f"{program} {hpcdl.__version__}")
            raise typer.Exit

    return show_version


_given: list[str] = []  # the words of the command line


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """In the block SIGTERM raises an error, so that nothing is left running or lying about."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == process:
            raise TerminatedError
        signal.signal(number, signal.SIG_DFL)  # a process that was forked from this one ends as any other
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _end_children() -> None:
    """End the processes of Python's own pools: they would finish what they are at, and this process wait for it."""
    if multiprocessing := sys.modules.get("multiprocessing"):
        for child in multiprocessing.active_children():
            child.terminate()


def explained(error: Exception) -> tuple[str, int]:
    """An error in one sentence, without its end, and the exit code."""
    if isinstance(error, OSError):
        return _of_system(error), 2
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _of_package(error.name), 2
    if type(error).__module__.partition(".")[0] in OWN:  # the house's own errors are sentences
        return str(error).rstrip("."), 2
    said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return f"The program failed ({said}). With HPCDL_TRACEBACK=1 it shows where: please tell us", 70


def _of_system(error: OSError) -> str:
    if error.errno is None or error.strerror is None:  # raised by the house, with a sentence
        return str(error).rstrip(".")
    place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    advice = f"; {NEXT[error.errno]}" if error.errno in NEXT else ""
    return f"{place}{error.strerror.lower()}{advice}"


def _of_package(name: str) -> str:
    package = name.partition(".")[0]
    if package in OWN:
        return f"{name} is not part of an installed package: run this in a clone of the course's repository"
    return f"this needs the package {package}, which is not installed here: pip install {package}"


def printable(text: str) -> str:
    """The text as a terminal may show it: control characters and bytes that are no text are written out."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def capital(sentence: str) -> str:
    """The sentence with a capital letter, unless it begins with a path or a name: those are shown as they are."""
    word = re.match(r"[a-z]+(?=[\s,;]|$)", sentence)
    is_path = any(re.match(re.escape(part) + r"(?!\w)", sentence) for part in _parts())
    return sentence if not word or is_path or os.path.lexists(word[0]) else sentence[:1].upper() + sentence[1:]


def _parts() -> set[str]:
    """The folders and files of the paths on the command line."""
    return {part for given in _given for part in Path(given.rpartition("=")[2]).parts}


def say(text: str) -> None:
    """Print a line, whatever names are in it."""
    typer.echo(printable(text))


def end(sentence: str, code: int = 2) -> NoReturn:
    """Say the sentence on stderr and end with the exit code."""
    typer.echo(f"{printable(capital(sentence))}.", err=True)
    raise typer.Exit(code) from None
