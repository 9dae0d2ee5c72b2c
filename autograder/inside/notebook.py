"""Reads a submitted notebook, however broken."""

import json
from dataclasses import dataclass, field

import nbformat

from .magics import plain_python
from .source import defined_names

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
