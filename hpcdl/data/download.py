"""Files from the net: checksummed, resumed where they broke off, kept in one cache folder, never half there.

A file is first `name.part`, and gets its name in one step when its size and SHA-256 are right. So a file under its own
name is always whole, and a download that was cut off goes on where it stopped. A lock beside it keeps several
processes (the ranks of a cluster) from fetching the same file at the same time.
"""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import filelock

CHUNK = 1 << 18  # bytes per read: often enough for a smooth bar
STALLED = 20.0  # seconds without a byte before the next mirror is tried
WAIT_FOR_OTHERS = 1800.0  # seconds that a process waits for another one's download of the same file


class DownloadError(OSError):
    """A file could not be fetched from any of its mirrors; the message says why and what to do next."""


@dataclass(frozen=True)
class RemoteFile:
    """A file by the bytes it must have: `sha256` (hexadecimal) and `size`, and the `urls` it may be fetched from."""

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...]


def cache_folder() -> Path:
    """Where downloads are kept: $HPCDL_DATA, else `hpcdl` in $XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("HPCDL_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "hpcdl"


def fetch(file: RemoteFile, folder: Path | None = None) -> Path:
    """The path of `file` in `folder` (default: the cache folder), downloaded unless it is there already.

    Raises DownloadError, with every mirror's reason, when no mirror gives the right bytes.
    """
    path = (folder or cache_folder()) / file.name
    if _is_whole(path, file):
        return path
    _make_folder(path.parent)
    with filelock.FileLock(f"{path}.lock", timeout=WAIT_FOR_OTHERS):
        if not _is_whole(path, file):  # another process may have fetched it while this one waited
            _download(file, path)
    return path


def _download(file: RemoteFile, path: Path) -> None:
    part, reasons = path.with_name(path.name + ".part"), []
    for url in file.urls:
        try:
            _receive(url, file, part)
            _verify(part, file)
        except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
            reasons.append(f"  {url}: {_reason(error)}")
        else:
            part.replace(path)
            return
    raise DownloadError(_advice(file, path, reasons))


def _receive(url: str, file: RemoteFile, part: Path) -> None:
    """Append to `part` what is missing of it, from `url`."""
    have = part.stat().st_size if part.exists() else 0
    if have >= file.size:  # nothing is missing: the checksum decides
        return
    request = urllib.request.Request(url, headers={"User-Agent": "hpcdl", "Range": f"bytes={have}-"})
    with urllib.request.urlopen(request, timeout=STALLED) as response:
        resumed = response.status == 206 and _starts_at(response, have)
        with part.open("ab" if resumed else "wb") as out, _bar(file, out.tell()) as advance:
            while chunk := response.read(CHUNK):
                if out.tell() + len(chunk) > file.size:
                    raise OSError(f"sends more than the {file.size:,} bytes this file has")
                advance(out.write(chunk))
    if (have := part.stat().st_size) < file.size:
        raise OSError(f"the connection ended after {have:,} of {file.size:,} bytes")


def _starts_at(response, byte: int) -> bool:
    return response.headers.get("Content-Range", "").startswith(f"bytes {byte}-")


def _verify(part: Path, file: RemoteFile) -> None:
    """`part` has the right bytes; if not, it is removed, so that the next try starts afresh."""
    if _is_whole(part, file):
        return
    found = _sha256(part)
    part.unlink()
    raise OSError(f"sent other bytes (SHA-256 {found[:12]}…, expected {file.sha256[:12]}…)")


def _is_whole(path: Path, file: RemoteFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size and _sha256(path) == file.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadError(
            f"cannot make the folder {folder} for downloads ({_reason(error)}); "
            "set HPCDL_DATA to a folder that you can write to"
        ) from error


def _reason(error: Exception) -> str:
    """The cause in words: `URLError` wraps it, and `HTTPError` has its code."""
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
            "or set HPCDL_DATA to a folder that holds it. What was received is kept: calling again goes on from there.",
        ]
    )


class _bar:  # noqa: N801 (reads as a function: `with _bar(file, done) as advance`)
    """A progress bar, in the terminal or in the notebook, for files big enough to wait for."""

    BIG = 1_000_000

    def __init__(self, file: RemoteFile, done: int):
        self.file, self.done = file, done

    def __enter__(self) -> Callable[[int], None]:
        if self.file.size < self.BIG:
            self.progress = None
            return lambda count: None
        from rich import progress

        columns = ("[progress.description]{task.description}", progress.BarColumn(), progress.DownloadColumn())
        self.progress = progress.Progress(*columns, progress.TransferSpeedColumn(), progress.TimeRemainingColumn())
        task = self.progress.add_task(self.file.name, total=self.file.size, completed=self.done)
        self.progress.start()
        return lambda count: self.progress.advance(task, count)

    def __exit__(self, *exception) -> None:
        if self.progress is not None:
            self.progress.stop()
