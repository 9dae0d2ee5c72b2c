"""Read folders that may change meanwhile: an unreadable entry is reported, and nothing stops."""

import os
from pathlib import Path

from .owners import is_noise

DEEPEST = 40  # folders in folders
MOST = 20_000  # files
ALLOW = "; change its permissions, and grade it again"


def entries_of(folder: Path) -> list[Path]:
    """Return a folder's entries except system files; empty if it cannot be read."""
    try:
        return in_order(os.listdir(folder), folder)
    except OSError:
        return []


def in_order(names: list[str], folder: Path) -> list[Path]:
    """Return the files and folders with these names in `folder`, without system files."""
    return [folder / name for name in sorted(names, key=os.fsencode) if not is_noise(name)]


def files_below(folder: Path, unread: list[str]) -> list[Path]:
    """Yield the files below a folder, including links; add a sentence to `unread` for each folder that cannot be
    read."""

    def note(error: OSError) -> None:
        unread.append(
            f"the folder {Path(error.filename).name!r} cannot be read: {(error.strerror or 'error').lower()}{ALLOW}"
        )

    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=note):
        deep = len(Path(place).relative_to(folder).parts) >= DEEPEST
        folders[:] = [] if deep else [name for name in folders if not is_noise(name)]
        found += [Path(place, name) for name in files if not is_noise(name)]
        if len(found) > MOST:
            unread.append(
                f"the folder has more than {MOST:,} files; the first counted: hand in only the notebook and its files"
            )
            break
    return sorted(found)
