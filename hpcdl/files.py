"""Atomic writes of files, and the files that a notebook needs from its folder."""

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

MOST_BYTES = 1 << 20  # of a file that comes along with a notebook
MOST_TOGETHER = 4 << 20
MOST_FILES = 100
MOST_NEAR = 2000  # files that are looked at
DEEPEST = 3  # folders in folders
IMPORT = r"""(?:["\n:;]|\\n)[ \t]*(?:from +[\w.]*|import +[\w., ]*)\b%s\b|import_module\(\\?["'][\w.]*\b%s\b"""


@contextlib.contextmanager
def written_whole(path: str | Path, mode: str = "w", durable: bool = True, **options: Any) -> Iterator[IO[Any]]:
    """Open a new file for writing; it is renamed to `path` atomically when the `with` block ends.

    A reader finds the old content or the new, never half. If the block fails or the process ends, the old content
    stays; an OSError names `path`. `durable` also waits for the disk, to survive a power failure; it is unnecessary for
    a file that lives only as long as the processes that read it. Text is UTF-8; `options` are passed to `open`.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")  # unique to this writer
    if "b" not in mode:
        options.setdefault("encoding", "utf-8")
    try:
        with part.open(mode, **options) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):
            error = error.__context__  # torch.save says only that its file is shorter than expected
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(part)):
            error.filename, error.filename2 = str(path), None  # a full disk names no file, the others that of the part
        raise error


def write_whole(path: str | Path, data: str | bytes, durable: bool = True) -> None:
    """Write `data` to `path` atomically: see `written_whole`."""
    with written_whole(path, "wb" if isinstance(data, bytes) else "w", durable) as file:
        file.write(data)


def needed_near(notebook: Path, data: bytes) -> list[tuple[str, Path]]:
    """Return the files near a notebook that it, or a module it needs, imports or names: (name, path).

    `data` is the notebook's bytes. A name is a path relative to the notebook's folder. Files that match `*.csv` or
    `f"part{i}.csv"` are included.
    """
    left = dict(_near(notebook.parent))
    found: dict[str, Path] = {}
    while fresh := {name: path for name, path in left.items() if _is_named(name, data)}:
        found |= fresh
        left = {name: path for name, path in left.items() if name not in fresh}
        data = b"\n".join(_code(path) for path in fresh.values())
    return sorted(found.items(), key=lambda pair: (not pair[0].endswith(".py"), pair[0]))


def _near(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield at most `MOST_NEAR` files below `folder`, except hidden files, notebooks and archives."""
    seen = 0
    for place, folders, files in os.walk(folder):
        inner = Path(place).relative_to(folder)
        deep = len(inner.parts) >= DEEPEST
        folders[:] = [] if deep else sorted(name for name in folders if name[0] not in "._" and name != "site-packages")
        for name in sorted(files):
            seen += 1
            if seen > MOST_NEAR:
                return
            if not name.startswith(".") and not name.endswith((".ipynb", ".zip", ".pyc")):
                yield (inner / name).as_posix(), Path(place, name)


def _is_named(name: str, text: bytes) -> bool:
    path = PurePosixPath(name)
    patterns = [rf"(?<![\w.-]){re.escape(path.name)}(?!\w)"]
    if path.suffix == ".py":
        patterns += [IMPORT % (stem, stem) for stem in map(re.escape, path.with_suffix("").parts)]
    elif path.suffix:
        patterns.append(rf"[*}}]{re.escape(path.suffix)}(?!\w)")
    return re.search("|".join(patterns).encode("utf-8", "replace"), text) is not None


def _code(path: Path) -> bytes:
    """Return the bytes of a module; nothing if the file is not a module or cannot be read."""
    with contextlib.suppress(OSError):
        if path.suffix == ".py" and path.stat().st_size <= MOST_BYTES:
            return b"\n" + path.read_bytes()
    return b""
