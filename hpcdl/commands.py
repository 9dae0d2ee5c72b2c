"""Errors of the commands `hpcdl` and `autograder`: one sentence and an exit code, no traceback.

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
from typer.core import TyperCommand, TyperGroup

import hpcdl
from hpcdl.lazy import hide_slow_imports

hide_slow_imports()

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
    errno.EEXIST: "choose another name; a file is not a folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}


KEPT = "What was done is kept where the command keeps its work; run it again to continue"


class TerminatedError(BaseException):
    """The process was sent SIGTERM."""


class _Sentences:
    """What a program's group of commands and its only command share: plain help, and an error as one sentence."""

    def get_params(self, ctx: Any) -> list:
        return _plain_flags(super().get_params(ctx))  # type: ignore[misc]

    def invoke(self, context: Any) -> Any:
        _given[:] = [*getattr(context, "_protected_args", ()), *context.args]
        try:
            with _terminable():
                return super().invoke(context)  # type: ignore[misc]
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


class Commands(_Sentences, TyperGroup):
    """A program's commands; an error in one ends the program with a sentence on stderr."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _plain_flags(command.get_params(ctx))
        return command


class Command(_Sentences, TyperCommand):
    """A program of one command; an error ends it with a sentence on stderr."""


def program(function: Callable, name: str, arguments: list[str] | None = None) -> NoReturn:
    """Run the program that is this one function; without `arguments`, with those of the process."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(cls=Command)(function)
    app(arguments, prog_name=name)
    raise AssertionError  # typer has ended the process


def _plain_flags(params: list) -> list:
    """Show no type for an option without a value, and no `--no-x` for one that is off by default."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
            if param.default is False:
                param.secondary_opts, param.show_default = [], False
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
    """Raise an error on SIGTERM inside the block, so that no process or file is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == process:
            raise TerminatedError
        signal.signal(number, signal.SIG_DFL)  # forked processes end normally
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _end_children() -> None:
    """End the processes of Python's own pools; otherwise this process would wait until they finish their work."""
    if multiprocessing := sys.modules.get("multiprocessing"):
        for child in multiprocessing.active_children():
            child.terminate()


def explained(error: Exception) -> tuple[str, int]:
    """Return an error as one sentence, without its full stop, and the exit code."""
    if isinstance(error, OSError):
        return _of_system(error), 2
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _of_package(error.name), 2
    if type(error).__module__.partition(".")[0] in OWN:  # our own errors are sentences
        return str(error).rstrip("."), 2
    said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return f"The program failed ({said}). With HPCDL_TRACEBACK=1 it shows where: please tell us", 70


def _of_system(error: OSError) -> str:
    if error.errno is None or error.strerror is None:  # raised by our own code, with a sentence
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
    """Return the text as a terminal may show it: control characters and undecodable bytes are escaped."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def capital(sentence: str) -> str:
    """Capitalise the sentence, unless it begins with a path or a name."""
    word = re.match(r"[a-z]+(?=[\s,;]|$)", sentence)
    is_path = any(re.match(re.escape(part) + r"(?!\w)", sentence) for part in _parts())
    return sentence if not word or is_path or os.path.lexists(word[0]) else sentence[:1].upper() + sentence[1:]


def _parts() -> set[str]:
    """Return the folders and files in the paths on the command line."""
    return {part for given in _given for part in Path(given.rpartition("=")[2]).parts}


@contextlib.contextmanager
def during(text: str) -> Iterator[Callable[[str], None]]:
    """Show `text` in a terminal while the block runs; yield a function that changes it."""
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(printable(text))) as status:
        yield lambda text: status.update(escape(printable(text)))


def say(text: str) -> None:
    """Print a line, whatever characters it contains."""
    typer.echo(printable(text))


def end(sentence: str, code: int = 2) -> NoReturn:
    """Print the sentence on stderr and exit with the code."""
    typer.echo(f"{printable(capital(sentence))}.", err=True)
    raise typer.Exit(code) from None
