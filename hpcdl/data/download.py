"""Downloads: checksummed, resumed after interruptions, kept in one cache folder, never incomplete.

A file is first `name.part`, and gets its name in one step when its size and SHA-256 are right. So a file under its
final name is always complete, and an interrupted download resumes where it stopped. A lock next to it keeps several
processes (the ranks of a cluster) from fetching the same file at the same time.
"""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import filelock

CHUNK = 1 << 18  # bytes per read: often enough for a smooth bar
BIG = 1_000_000  # bytes from which a file gets a progress bar
STALLED = 20.0  # seconds without a byte before the next mirror is tried
WAIT_FOR_OTHERS = 1800.0  # seconds that a process waits for another one's download of the same file


class DownloadError(OSError):
    """A file could not be fetched from any of its mirrors; the message says why and what to do next."""


@dataclass(frozen=True)
class RemoteFile:
    """A file identified by its bytes: `sha256` (hexadecimal) and `size`, and the `urls` it may be fetched from."""

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...]


def cache_folder() -> Path:
    """Return where downloads are kept: $HPCDL_DATA, else `hpcdl` in $XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("HPCDL_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "hpcdl"


def fetch(file: RemoteFile, folder: Path | None = None) -> Path:
    """Return the path of `file` in `folder` (default: the cache folder), downloaded unless it is there already.

    Raises DownloadError, with every mirror's reason, when no mirror gives the right bytes.
    """
    path = (Path(folder) if folder else cache_folder()) / file.name
    if _is_whole(path, file):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{path}.lock", timeout=WAIT_FOR_OTHERS):
            if not _is_whole(path, file):  # another process may have fetched it while this one waited
                _download(file, path)
    except DownloadError:
        raise
    except OSError as error:  # no such folder, no right to write, disk full, another process that never ends
        raise DownloadError(
            f"cannot keep {file.name} in {path.parent}: {_reason(error)}. "
            "Set HPCDL_DATA to a folder that you can write to."
        ) from error
    return path


def _download(file: RemoteFile, path: Path) -> None:
    part, reasons = path.with_name(path.name + ".part"), []
    leftover = part.exists()  # it may be bad: then try the first mirror again from the beginning
    for url in file.urls[: int(leftover)] + file.urls:
        try:
            _receive(url, file, part)
            _verify(part, file)
        except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
            reasons.append(f"  {url}: {_reason(error)}")
        else:
            part.replace(path)
            return
    raise DownloadError(_advice(file, path, list(dict.fromkeys(reasons))))


def _receive(url: str, file: RemoteFile, part: Path) -> None:
    """Append the missing bytes to `part`, from `url`."""
    have = part.stat().st_size if part.exists() else 0
    if have >= file.size:  # nothing is missing: the checksum decides
        return
    request = urllib.request.Request(url, headers={"User-Agent": "hpcdl", "Range": f"bytes={have}-"})
    with urllib.request.urlopen(request, timeout=STALLED) as response:
        resumed = _continues(response, have, file)
        with part.open("ab" if resumed else "wb") as out, _bar(file, have if resumed else 0) as advance:
            while chunk := response.read(CHUNK):
                advance(out.write(chunk))
    if (have := part.stat().st_size) < file.size:
        raise OSError(f"the connection ended after {have:,} of {file.size:,} bytes")


def _continues(response, have: int, file: RemoteFile) -> bool:
    """Return whether the answer continues at byte `have` (otherwise it starts at 0); raise OSError if it cannot be this
    file."""
    resumed = response.status == 206
    offered = response.headers.get("Content-Range" if resumed else "Content-Length", "")
    right = (f"bytes {have}-{file.size - 1}/{file.size}",) if resumed else (str(file.size), "")
    if offered not in right:
        raise OSError(f"offers {offered} where {right[0]} was expected; is it a login page of your network?")
    return resumed


def _verify(part: Path, file: RemoteFile) -> None:
    """Check that `part` has the right bytes; otherwise remove it, so that the next try starts over."""
    if _is_whole(part, file):
        return
    size, found = part.stat().st_size, _sha256(part)
    part.unlink()
    raise OSError(f"sent other bytes ({size:,}, SHA-256 {found[:12]}…; expected {file.size:,}, {file.sha256[:12]}…)")


def _is_whole(path: Path, file: RemoteFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size and _sha256(path) == file.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _reason(error: Exception) -> str:
    """Describe the cause: `URLError` wraps it, and `HTTPError` has its code."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, Exception) else error
    if isinstance(error, TimeoutError):
        return f"no answer for {STALLED:g} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _advice(file: RemoteFile, path: Path, reasons: list[str]) -> str:
    return "\n".join(
        [
            f"{file.name} ({file.size / 1e6:.1f} MB) could not be fetched:",
            *reasons,
            "Is this machine online? If it must stay offline, fetch the file elsewhere and put it at",
            f"  {path}",
            "or set HPCDL_DATA to a folder that holds it. What was received is kept: another call continues there.",
        ]
    )


@contextmanager
def _bar(file: RemoteFile, done: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, in the terminal or in the notebook, for files big enough to wait for; gives its `advance`."""
    if file.size < BIG:
        yield lambda count: None
        return
    from rich import progress  # slow to import, and most calls find the file in the cache

    columns = ("[progress.description]{task.description}", progress.BarColumn(), progress.DownloadColumn())
    with progress.Progress(*columns, progress.TransferSpeedColumn(), progress.TimeRemainingColumn()) as bar:
        task = bar.add_task(file.name, total=file.size, completed=done)
        yield lambda count: bar.advance(task, count)
