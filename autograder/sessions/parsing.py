"""Submitted files are parsed in the sandbox: they may attack the parsers of JSON, notebooks and Python."""

from typing import Any

from autograder.boundary.protocol import ProtocolError, UnsendableError
from autograder.inside.notebook import Notebook, TextCell, UngradableError
from autograder.walls.zygote import Zygote

from .errors import StudentError
from .remote import RemoteSession

SECONDS = 20.0  # for a file or its statements
FRESH = "copy your answers into a fresh notebook of the lab, and hand that in"

Cells = list[tuple[str, str]]  # label, source


class ParsingSession(RemoteSession):
    """A worker that parses, and runs no student code before `load`. A context manager."""

    def __init__(self, zygote: Zygote, folder: str):
        super().__init__(zygote, [], folder)
        self.places: dict[str, list[str]] = {}

    def read(self, data: bytes) -> Notebook:
        """Return the notebook in a file's bytes; raise UngradableError if something is wrong with it."""
        cells, notes, slug, names, texts, stopped = self.parsed("parse", data)
        texts = [TextCell(str(label), str(kind), _texts(own)) for label, kind, own in texts]
        lines = {str(label): int(line) for label, line in stopped}
        return Notebook(_pairs(cells), _texts(notes), str(slug), set(_texts(names)), texts, lines)

    def needed(self, cells: Cells, exercises: list[list[str]]) -> tuple[Cells, list[str], list[tuple[str, list[str]]]]:
        """Return the statements that the exercises' functions need, notes for the student, and each exercise's
        fingerprint and shapes, to find code that is equal or similar apart from names.

        `places` then has the labels of the statements that bind each function."""
        statements, notes, prints, shapes, places = self.parsed("needed", cells, exercises)
        self.places = {str(name): _texts(labels) for name, labels in places}
        blank = [""] * len(exercises)
        pairs = zip(_texts(prints) + blank, _texts(shapes) + blank, strict=False)
        code = [(fingerprint, shapes.split()) for fingerprint, shapes in pairs]
        return _pairs(statements), _texts(notes), code[: len(exercises)]

    def wider(self, content: Notebook, functions: tuple[str, ...]) -> tuple[Cells, Cells, list[str]]:
        """Return the statements that `functions` need, with all others that mention one of their objects; the same
        without what a cell has after it stopped, and where cells stopped."""
        wider, live, places = self.parsed("wider", content.cells, list(functions), [*content.stopped.items()])
        return _pairs(wider), _pairs(live), _texts(places)

    def parsed(self, what: str, *args: Any):
        self.allot(SECONDS)  # no student code has run here: it is in step
        try:
            return self.timed([what, ""], args, None, objects=False)
        except StudentError as error:
            if error.type == "UngradableError":
                raise UngradableError(error.text) from None
            raise UngradableError(f"the file cannot be read: {error.text or error.type}", FRESH) from None
        except (ProtocolError, UnsendableError) as error:
            raise UngradableError(f"the file cannot be read: {error}", FRESH) from None


def _pairs(cells) -> Cells:
    return [(str(label), str(source)) for label, source in cells]


def _texts(values) -> list[str]:
    return [str(value) for value in values]
