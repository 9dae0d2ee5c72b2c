"""Where the labs are: a clone has them, an installed package brings copies, and a user's folder keeps their work."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CLONE = PACKAGE.parent / "labs"
BROUGHT = PACKAGE / "notebooks"  # in an installed package
MAP = "map.ipynb"  # made from README.md, with a cell that says where one is


class LabsError(ValueError):
    """There is no such lab; the message names the labs there are."""


def notebooks(folder: Path) -> list[Path]:
    """The labs in a folder, in the order of the course."""
    return sorted(folder.glob("[0-9][0-9]_*.ipynb"))


def shipped() -> Path:
    """The folder of notebooks as they are published: the clone's, or what the installed package brings."""
    return CLONE if notebooks(CLONE) else BROUGHT


def found(start: Path) -> Path | None:
    """The folder of labs that a user in the folder `start` means, where there is one already."""
    candidates = (start / "labs", start, CLONE)
    return next((folder for folder in candidates if notebooks(folder)), None)


def map_in(folder: Path) -> str:
    """The page on which a visitor of the folder begins; a folder that an instructor made has a README of its own."""
    return MAP if (folder / MAP).exists() else "README.md"


def slug_of(notebook: Path) -> str:
    """The lab's name in the file's name: ddp of 07_ddp.ipynb."""
    return notebook.stem.partition("_")[2]


def is_outdated(notebook: Path) -> bool:
    """Whether the course has renumbered this lab since, and the notebook with its new number is in the same folder."""
    new = [path.name for path in notebooks(shipped()) if slug_of(path) == slug_of(notebook)]
    return notebook.name not in new and any((notebook.parent / name).exists() for name in new)


def current(folder: Path) -> list[Path]:
    """Return the labs in a folder without those that the course has renumbered since."""
    return [path for path in notebooks(folder) if not is_outdated(path)]


def find(name: str, folder: Path) -> Path:
    """Return the lab in a folder whose number, slug or file is `name`; LabsError names the labs there are."""
    for path in current(folder):
        number, slug = path.stem.split("_", 1)
        if name in (slug, path.stem, path.name) or (name.isascii() and name.isdecimal() and int(name) == int(number)):
            return path
    raise LabsError(f"there is no lab {name!r}; the labs are {', '.join(path.stem for path in current(folder))}")


def bring(folder: Path) -> list[Path]:
    """Copy the labs and their map into `folder`; what is there already is kept, whatever it is. The new files."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = (*notebooks(shipped()), shipped() / "README.md", shipped() / MAP)
    return [folder / source.name for source in sources if _copied(source, folder / source.name)]


def _copied(source: Path, target: Path) -> bool:
    """Whether the file is new: `x` opens only what does not exist, a link included."""
    content = source.read_bytes()
    try:
        with open(target, "xb") as file:
            file.write(content)
    except FileExistsError:
        return False
    except OSError as error:
        target.unlink(missing_ok=True)  # half a file: the disk is full
        error.filename = str(target)
        raise
    return True
