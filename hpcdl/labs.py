"""Where the labs are: a clone has them, an installed package brings copies, and a user's folder keeps their work."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CLONE = PACKAGE.parent / "labs"
BROUGHT = PACKAGE / "notebooks"  # in an installed package
MAP = "map.ipynb"  # made from README.md, with a cell that shows your progress


class LabsError(ValueError):
    """There is no such lab; the message lists the labs that exist."""


def notebooks(folder: Path) -> list[Path]:
    """Return the labs in a folder, in the order of the course."""
    return sorted(folder.glob("[0-9][0-9]_*.ipynb"))


def shipped() -> Path:
    """Return the folder of published notebooks: in the clone, or in the installed package."""
    return CLONE if notebooks(CLONE) else BROUGHT


def found(start: Path) -> Path | None:
    """Return the existing folder of labs for a user in the folder `start`, if any."""
    candidates = (start / "labs", start, CLONE)
    return next((folder for folder in candidates if notebooks(folder)), None)


def map_in(folder: Path) -> str:
    """Return the folder's start page; a folder that an instructor made has its own README."""
    return MAP if (folder / MAP).exists() else "README.md"


def slug_of(notebook: Path) -> str:
    """Return the lab's name from the file's name: ddp for 07_ddp.ipynb."""
    return notebook.stem.partition("_")[2]


def is_outdated(notebook: Path) -> bool:
    """Return whether the course has renumbered this lab, and the renumbered notebook is in the same folder."""
    new = [path.name for path in notebooks(shipped()) if slug_of(path) == slug_of(notebook)]
    return notebook.name not in new and any((notebook.parent / name).exists() for name in new)


def current(folder: Path) -> list[Path]:
    """Return the labs in a folder without those that the course has renumbered since."""
    return [path for path in notebooks(folder) if not is_outdated(path)]


def find(name: str, folder: Path) -> Path:
    """Return the lab in a folder whose number, slug or file is `name`; LabsError lists the labs that exist."""
    for path in current(folder):
        number, slug = path.stem.split("_", 1)
        if name in (slug, path.stem, path.name) or (name.isascii() and name.isdecimal() and int(name) == int(number)):
            return path
    raise LabsError(f"there is no lab {name!r}; the labs are {', '.join(path.stem for path in current(folder))}")


def copy_missing(folder: Path) -> list[Path]:
    """Copy the labs and their map into `folder`, keep every existing file, and return the new files."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = (*notebooks(shipped()), shipped() / "README.md", shipped() / MAP)
    return [folder / source.name for source in sources if _copied(source, folder / source.name)]


def _copied(source: Path, target: Path) -> bool:
    """Copy the file and return whether it is new: mode `x` refuses existing files and links."""
    content = source.read_bytes()
    try:
        with open(target, "xb") as file:
            file.write(content)
    except FileExistsError:
        return False
    except OSError as error:
        target.unlink(missing_ok=True)  # the disk is full: remove the partial file
        error.filename = str(target)
        raise
    return True
