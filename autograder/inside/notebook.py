"""Reads a submitted notebook, however broken."""

import json
from dataclasses import dataclass, field

import nbformat

from . import magics, stops, syntax
from .magics import plain_python
from .source import DEFINED, defined_names

MAX_CELL = 1 << 18  # characters of one cell's code
MOST_STATEMENTS = 1500  # of one cell, at top level
MOST_TOGETHER = 4000


SAVE = "open it in JupyterLab, save it and hand it in again"
HAND_IN = "hand in the .ipynb file that JupyterLab saves"
PACK = "pack only the notebook and its files, from their own folder"
CONFLICT = "keep one side of each conflict, see that JupyterLab opens the file, and hand it in again"
PYTHON = "choose a Python kernel in JupyterLab, save it and hand it in again"


class UngradableError(Exception):
    """The file cannot be graded; the message is the reason and what to do next, for the grade sheet."""

    def __init__(self, reason: str, step: str = ""):
        super().__init__(f"{reason}; {step}" if step else reason)


@dataclass
class TextCell:
    """A cell that defines functions or classes but does not run: of text (probably a converted code cell), or one that
    begins with a magic of another language or of the student's own."""

    label: str
    kind: str  # "Markdown", "raw", or the magic, as "%%mine"
    names: list[str]

    @property
    def advice(self) -> str:
        if self.kind == "%%timeit":
            return "begins with `%%timeit`, which binds no name outside of the cell: take that line out"
        if self.kind.startswith("%%"):
            return f"begins with `{self.kind}`, which grading does not run: take that line out"
        return f"is a {self.kind} cell: turn it into a code cell"


@dataclass
class Notebook:
    """The code cells of a submission, as plain Python: (label, source), in the order of the file."""

    cells: list[tuple[str, str]]
    notes: list[str]
    slug: str = ""  # the lab, written into the file by the build
    names: set[str] = field(default_factory=set)  # names that its cells bind
    texts: list[TextCell] = field(default_factory=list)
    stopped: dict[str, int] = field(default_factory=dict)  # label -> line of the saved error, 0 if unknown

    def asleep(self, functions: list[str]) -> dict[str, str]:
        """Say what to do about `functions` that only a cell defines which does not run."""
        return {
            name: f"{text.label}, in which you define `{name}`, {text.advice}"
            for text in self.texts
            for name in functions
            if name in text.names and name not in self.names
        }


def parse(data: bytes) -> Notebook:
    """Parse a notebook from a file's bytes. Grading calls it in the sandbox, because a file may attack the parser."""
    content = _parse(_text(data))
    cells: list[tuple[str, str]] = []
    notes, texts, stopped = [], [], {}
    numbered = dict(enumerate(_cells(content), start=1))
    codes = {number: _source(cell, "code") for number, cell in numbered.items()}
    plain = {number: plain_python(code) for number, code in codes.items() if len(code) <= MAX_CELL}
    sizes = {number: _statements(code) for number, code in plain.items()}
    too_many = _too_many(sizes)
    for number, cell in numbered.items():
        source = codes[number]
        if text := _text_cell(cell, number):
            texts.append(text)
        if number not in plain:
            notes.append(f"cell {number} was left out: it has {len(source):,} characters")
        elif number in too_many:
            notes.append(f"cell {number} was left out: it has {sizes[number]:,} statements")
        elif source:
            cells.append((f"cell {number}", plain[number]))
            if (line := stops.saved(cell, source)) is not None:
                stopped[f"cell {number}"] = line
    return Notebook(cells, notes, _slug(content), defined_names(cells), texts, stopped)


def _too_many(sizes: dict[int, int]) -> set[int]:
    """Return the cells to leave out: each that is too large, and the largest until the others fit together."""
    found, room = set(), MOST_TOGETHER
    for number in sorted(sizes, key=sizes.__getitem__):
        if sizes[number] > min(MOST_STATEMENTS, room):
            found.add(number)
        else:
            room -= sizes[number]
    return found


def _statements(code: str) -> int:
    """Return the number of top-level statements; 0 if the code does not compile, which is reported later."""
    try:
        return len(syntax.parse(code).body)
    except syntax.PARSE_ERRORS:
        return 0


def _text(data: bytes) -> str:
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise UngradableError("the file is not text in UTF-8, so it is not a notebook", HAND_IN) from None


def _parse(text: str) -> dict:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if "<<<<<<<" in text and ">>>>>>>" in text:
            raise UngradableError("the file has unresolved merge-conflict markers", CONFLICT) from None
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise UngradableError(f"the file is not a notebook: it is damaged or not JSON{where}", HAND_IN) from None
    if type(content) is not dict:
        raise UngradableError("the file is not a notebook: it is JSON, but not an object", HAND_IN)
    return _version_4(content)


def _version_4(content: dict) -> dict:
    version = content.get("nbformat", 4)
    if type(version) is int and version < 4:
        try:
            old = nbformat.versions[version].to_notebook_json(content, minor=content.get("nbformat_minor", 0))
            return nbformat.convert(old, 4)
        except Exception:  # a malformed old notebook may make the converter raise anything
            raise UngradableError(f"it is a notebook of format {version} that cannot be converted", SAVE) from None
    return content


def _cells(content: dict) -> list[dict]:
    cells = content.get("cells")
    if type(cells) is not list:
        raise UngradableError("the notebook has no list of cells", HAND_IN)
    language = _metadata(content, "language_info", "name") or _metadata(content, "kernelspec", "language") or "python"
    if type(language) is not str or "python" not in language.lower():
        raise UngradableError(f"the notebook is written in {str(language)[:40]}, not in Python", PYTHON)
    return [cell if isinstance(cell, dict) else {} for cell in cells]


def _source(cell: dict, kind: str) -> str:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if type(part) is str)
    return source if cell.get("cell_type") == kind and type(source) is str else ""


def _text_cell(cell: dict, number: int) -> TextCell | None:
    for kind, name in (("markdown", "Markdown"), ("raw", "raw")):
        if names := DEFINED.findall(_source(cell, kind)[:MAX_CELL]):
            return TextCell(f"cell {number}", name, sorted({*names}))
    source = _source(cell, "code")[:MAX_CELL]
    if (magic := magics.hides(source)) and (names := DEFINED.findall(source)):
        return TextCell(f"cell {number}", magic, sorted({*names}))
    return None


def _slug(content: dict) -> str:
    slug = _metadata(content, "hpcdl", "lab")
    return slug if type(slug) is str else ""


def _metadata(content: dict, *keys: str):
    value = content.get("metadata")
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
