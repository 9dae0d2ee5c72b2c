"""Files next to a notebook, such as a module or a data table: small ones are available in grading.

They become statements before the notebook's own, so every worker of the submission has them.
"""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from autograder.inside.notebook import UngradableError
from autograder.inside.worker import REFERENCE
from hpcdl.files import MOST_BYTES, MOST_FILES, MOST_TOGETHER

from .submission import Beside

CAME_ALONG = "next to the notebook came along"
PIECE = 1 << 19  # bytes that one statement writes

Cells = list[tuple[str, str]]  # label, source


class Along(NamedTuple):
    """The files that come along, by name, and the reasons why others do not."""

    files: dict[str, bytes]
    left: dict[str, str]

    def packed(self) -> bytes:
        """Return the bytes for `unpacked`."""
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        return json.dumps([files, self.left]).encode()

    @classmethod
    def unpacked(cls, data: bytes) -> "Along":
        files, left = json.loads(data)
        return cls({name: base64.b64decode(text) for name, text in files.items()}, left)

    def cells(self) -> Cells:
        """Return statements that write the files where the notebook's code runs."""
        return [(REFERENCE, code) for name, data in self.files.items() for code in _writing(name, data)]

    def notes(self, notebook: bytes) -> list[str]:
        """Return sentences about modules, and about files that the notebook names."""
        came = [name for name in self.files if _matters(name, notebook)]
        notes = [f"{_listed(came)} {CAME_ALONG}"] if came else []
        left = {name: why for name, why in self.left.items() if _matters(name, notebook)}
        return notes + [f"{name!r} next to the notebook did not come along: {why}" for name, why in left.items()]


NOTHING = Along({}, {})


def gather(beside: Beside, read: Callable[[Path, int], bytes]) -> Along:
    """Read the files; `read(path, most)` gives the bytes of one, or UngradableError."""
    along, room = Along({}, {}), MOST_TOGETHER
    for name, path in beside:
        if len(along.files) + len(along.left) >= MOST_FILES:
            break
        try:
            along.files[_clean(name)] = data = read(path, min(MOST_BYTES, room))
            room -= len(data)
        except UngradableError as error:
            along.left[_clean(name)] = str(error)
    return along


def _clean(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _writing(name: str, data: bytes) -> Iterator[str]:
    """Return one statement for each piece of a file. They leave no name in the notebook's namespace."""
    path = f'__import__("pathlib").Path({name!r})'
    yield f"{path}.parent.mkdir(parents=True, exist_ok=True)"
    for start in range(0, max(len(data), 1), PIECE):
        text = base64.b64encode(data[start : start + PIECE]).decode()
        mode = "ab" if start else "wb"
        yield f'{path}.open("{mode}").write(__import__("base64").b64decode("{text}"))'


def _matters(name: str, notebook: bytes) -> bool:
    path = Path(name)
    return path.suffix == ".py" or path.name.encode() in notebook


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
