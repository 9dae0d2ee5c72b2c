"""Render the pictures of the labs for the site: a poster and an animation of each, for light and for dark pages.

A render is kept in `docs/_frames` until the library or the picture's moves change. HPCDL_SITE=quick gives each
animation two frames only, which is enough to test the pages.
"""

import hashlib
import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

from hpcdl.widgets import film, plays

VERSION = 2  # raise it after a change in this file: what is kept is then rendered again
ROOT = Path(__file__).resolve().parent.parent
QUICK = os.environ.get("HPCDL_SITE") == "quick"
CACHE = ROOT / "docs" / ("_frames_quick" if QUICK else "_frames")
NO_PICTURE = {"slides", "jupyter", "cluster", "plays.py"}  # of the library: pictures do not depend on them
THEMES = ("light", "dark")


@dataclass
class Frames:
    """A rendered picture: the files are NAME-light.webp (poster), NAME-light-play.webp (animation), and so for dark."""

    name: str
    title: str  # what it shows
    text: str  # the poster's own sentence: its text for screen readers
    moves: str  # the label of the control that moves
    width: int
    height: int
    told: list[str]  # the sentence of each frame of the animation

    @property
    def frames(self) -> int:
        return len(self.told)


def render_all(names: list[str]) -> dict[str, Frames]:
    """Render what the cache lacks, one picture a core; each picture by its name."""
    CACHE.mkdir(exist_ok=True)
    keys = _keys(names)
    missing = [name for name in names if _kept(name, keys[name]) is None]
    if missing:
        workers = min(len(missing), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            list(pool.map(_render, missing, [keys[name] for name in missing]))
    return {name: frames for name in names if (frames := _kept(name, keys[name])) is not None}


def copy(folder: Path) -> None:
    """Copy the files of all pictures into `folder`."""
    shutil.copytree(CACHE, folder, ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)


def _keys(names: list[str]) -> dict[str, str]:
    """For each picture a hash of what decides how it looks: the library, its moves, and how it is kept."""
    sources = sorted(path for path in (ROOT / "hpcdl").glob("*/**/*.py") if not set(path.parts) & NO_PICTURE)
    library = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources))
    moves = plays.texts()
    rest = {name: f"{library.hexdigest()} {moves.get(name)} {VERSION} {QUICK}" for name in names}
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in rest.items()}


def _kept(name: str, key: str) -> Frames | None:
    try:
        content = json.loads((CACHE / f"{name}.json").read_text(encoding="utf-8"))
        return Frames(**content["frames"]) if content["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _render(name: str, key: str) -> None:
    """Render one picture in this process."""
    import torch

    torch.set_num_threads(1)
    films = {theme: film.shoot(name, theme == "dark", 2 if QUICK else None) for theme in THEMES}
    played = {theme: each.animation() for theme, each in films.items()}
    for theme, each in films.items():
        (CACHE / f"{name}-{theme}.webp").write_bytes(each.poster())
        (CACHE / f"{name}-{theme}-play.webp").write_bytes(played[theme])
    shot = films["light"]
    told = shot.told(played["light"])
    said = Frames(name, shot.title, shot.texts[shot.still], shot.moves, *shot.images[0].size, told)
    (CACHE / f"{name}.json").write_text(json.dumps({"key": key, "frames": asdict(said)}), encoding="utf-8")
