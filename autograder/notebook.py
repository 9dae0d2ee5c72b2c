"""Reads a submitted notebook, however broken, and names the lab it belongs to."""

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from .source import defined_names, plain_python

MAX_BYTES = 64 << 20
MAX_CELL = 1 << 18  # characters of one cell's code


class UngradableError(Exception):
    """The file cannot be graded; the message is the reason, for the grade sheet."""


@dataclass
class Notebook:
    """The code cells of a submission, as plain Python: (label, source), in the order of the file."""

    cells: list[tuple[str, str]]
    notes: list[str]
    slug: str = ""  # the lab that the build wrote into the file
    names: set[str] = field(default_factory=set)  # that its cells bind


def read(path: Path) -> Notebook:
    """The notebook at `path`; UngradableError says what is wrong with a file that is none."""
    return parse(contents(path))


def parse(data: bytes) -> Notebook:
    """The notebook of a file's bytes. Grading calls it in the sandbox: what parses may be attacked through it."""
    content = _parse(_text(data))
    cells, notes = [], []
    for number, cell in enumerate(_cells(content), start=1):
        source = _code(cell)
        if len(source) > MAX_CELL:
            notes.append(f"cell {number} was left out: it has {len(source):,} characters")
        elif source:
            cells.append((f"cell {number}", plain_python(source)))
    return Notebook(cells, notes, _slug(content), defined_names(cells))


def lab_of(notebook: Notebook, path: Path):
    """The lab a notebook belongs to: by its metadata, or else its functions, or else its file name."""
    from . import exercises  # here, since the worker imports this module, and holds no exercises

    if notebook.slug in exercises.LABS:
        return exercises.load(notebook.slug)
    names = notebook.names
    labs = [exercises.load(slug) for slug in exercises.LABS]
    found = {lab.slug: sum(f in names for e in lab.exercises.values() for f in e.functions) for lab in labs}
    best = max(labs, key=lambda lab: found[lab.slug])
    if found[best.slug]:
        return best
    named = [lab for lab in labs if lab.slug in path.stem]
    if named:
        return named[0]
    raise UngradableError("it belongs to no lab: it defines none of the functions that the labs ask for")


def contents(path: Path) -> bytes:
    """The bytes of a regular file that is not too large; UngradableError says why there are none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = "it is a link" if path.is_symlink() else (error.strerror or "error").lower()
        raise UngradableError(f"the file cannot be read: {reason}") from None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise UngradableError("it is not a regular file")
        if info.st_size > MAX_BYTES:
            raise UngradableError(
                f"the file has {info.st_size >> 20} MiB, more than {MAX_BYTES >> 20}: clear its outputs"
            )
        data = file.read(MAX_BYTES + 1)
    if not data.strip():
        raise UngradableError("the file is empty")
    return data


def _text(data: bytes) -> str:
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise UngradableError("the file is not text in UTF-8, so it is not a notebook") from None


def _parse(text: str) -> dict:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if "<<<<<<<" in text and ">>>>>>>" in text:
            raise UngradableError("the file has unresolved merge-conflict markers") from None
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise UngradableError(f"the file is not a notebook: it is damaged or not JSON{where}") from None
    if type(content) is not dict:
        raise UngradableError("the file is not a notebook: it is JSON, but not an object")
    return _version_4(content)


def _version_4(content: dict) -> dict:
    version = content.get("nbformat", 4)
    if type(version) is int and version < 4:
        try:
            return nbformat.convert(nbformat.from_dict(content), 4)
        except Exception:  # whatever a malformed old notebook makes the converter raise
            raise UngradableError(f"it is a notebook of format {version} that cannot be converted") from None
    return content


def _cells(content: dict) -> list[dict]:
    cells = content.get("cells")
    if type(cells) is not list:
        raise UngradableError("the notebook has no list of cells")
    language = _metadata(content, "language_info", "name") or _metadata(content, "kernelspec", "language") or "python"
    if type(language) is not str or "python" not in language.lower():
        raise UngradableError(f"the notebook is written in {str(language)[:40]}, not in Python")
    return [cell if isinstance(cell, dict) else {} for cell in cells]


def _code(cell: dict) -> str:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if type(part) is str)
    return source if cell.get("cell_type") == "code" and type(source) is str else ""


def _slug(content: dict) -> str:
    slug = _metadata(content, "hpcdl", "lab")
    return slug if type(slug) is str else ""


def _metadata(content: dict, *keys: str):
    value = content.get("metadata")
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
