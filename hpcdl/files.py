"""Files that are written whole or not at all."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def written_whole(path: str | Path, mode: str = "w", durable: bool = True, **options: Any) -> Iterator[IO[Any]]:
    """A new file, open to be written, that takes the name `path` in one moment when the `with` block ends.

    A reader finds the old content or the new, never half; an error in the block, or the end of the process, leaves the
    old. `durable` also waits for the disk, so that the same holds when the power fails: needless for a file that lives
    only as long as the processes that read it. Text is UTF-8; `options` are those of `open`.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")  # no other writer's
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
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # a full disk does not say where it is
        raise


def write_whole(path: str | Path, data: str | bytes, durable: bool = True) -> None:
    """Write `data` to `path` as `written_whole` does."""
    with written_whole(path, "wb" if isinstance(data, bytes) else "w", durable) as file:
        file.write(data)
