"""A CSV file of a course system, filled in and otherwise left as it is: separator, line ends, byte order mark."""

import csv
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from autograder.grading.grades import neutral
from autograder.grading.store import write_text
from autograder.results import LabResult

from .load import ResultError, scaled

_NUMBER = re.compile(r"[+-]?[\d.,]*%?")


@dataclass
class Filled:
    """What came of filling a sheet: how many rows, and by name what was left open and why."""

    rows: int = 0
    left: list[str] = field(default_factory=list)


@dataclass
class Sheet:
    """Rows of cells; the first is the header."""

    rows: list[list[str]]
    mark: bool
    separator: str
    line_end: str

    @classmethod
    def read(cls, path: Path) -> "Sheet":
        data = path.read_bytes()
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ResultError(f"{path} is not text in UTF-8; export it again, or save it as UTF-8") from None
        first = text.partition("\n")[0]
        separator = max(",;\t", key=first.count)
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
        if not rows or len(rows[0]) < 2:
            raise ResultError(f"{path} has no header of several columns; give the file that the course system exported")
        return cls(rows, data.startswith(b"\xef\xbb\xbf"), separator, "\r\n" if b"\r\n" in data else "\n")

    def write(self, path: Path) -> None:
        """Write it; a cell that a spreadsheet would run, such as a student's name, is neutralised."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=self.separator, lineterminator=self.line_end)
        writer.writerows([_harmless(cell) for cell in row] for row in self.rows)
        write_text(path, ("\ufeff" if self.mark else "") + text.getvalue())

    def column(self, *names: str) -> int | None:
        """The first column with one of these names."""
        header = [name.strip().casefold() for name in self.rows[0]]
        return next((header.index(name.casefold()) for name in names if name.casefold() in header), None)

    def cell(self, row: list[str], column: int | None) -> str:
        return row[column].strip() if column is not None and column < len(row) else ""


def _harmless(cell: str) -> str:
    return cell if _NUMBER.fullmatch(cell) else neutral(cell)


def number(cell: str) -> float | None:
    """Parse a number with a point or a comma; return None if it is not a number."""
    try:
        return float(cell.replace(",", "."))
    except ValueError:
        return None


def grade_for(result: LabResult | None, possible: float | None) -> str:
    """The grade as a cell; empty where there is nothing to enter."""
    return "" if result is None or result.status != "graded" else f"{scaled(result, possible):g}"
