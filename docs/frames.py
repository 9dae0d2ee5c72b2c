"""Render the pictures of the labs for the site: a poster and an animation of each, for light and for dark pages.

A render is kept in `docs/_frames` until the library or the picture's moves change. HPCDL_SITE=quick gives each
animation two frames only, which is enough to test the pages.
"""

import hashlib
import io
import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import plays
from PIL import Image

VERSION = 1  # raise it after a change in this file: what is kept is then rendered again
ROOT = Path(__file__).resolve().parent.parent
QUICK = os.environ.get("HPCDL_SITE") == "quick"
CACHE = ROOT / "docs" / ("_frames_quick" if QUICK else "_frames")
MOST_BYTES = 400_000  # of an animation
ENOUGH_BYTES = 200_000  # a lossless animation up to this size is kept as it is
MILLISECONDS = {True: 220, False: 1200}  # a frame of a sweep; a frame of a few settings
LONG = 10  # frames from which on it is a sweep
REST = 4  # frames' time that the last frame stays
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
    frames: int


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
    library = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted((ROOT / "hpcdl").rglob("*.py"))))
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
    drawn = {theme: _drawn(name, theme) for theme in THEMES}
    for theme, (images, _, _) in drawn.items():
        _save_poster(images[_poster(images)], CACHE / f"{name}-{theme}.webp")
        _save_animation(images, CACHE / f"{name}-{theme}-play.webp")
    images, texts, moves = drawn["light"]
    frames = Frames(name, _title(name), texts[_poster(images)], moves, *images[0].size, len(images))
    (CACHE / f"{name}.json").write_text(json.dumps({"key": key, "frames": asdict(frames)}), encoding="utf-8")


def _poster(images: list) -> int:
    """Which frame stands still: one on the way, since the ends show least."""
    return (2 * len(images)) // 3 if len(images) > 2 else len(images) - 1


def _drawn(name: str, theme: str) -> tuple[list, list[str], str]:
    """The frames, the sentence of each, and what moves."""
    from hpcdl.widgets.kit import palette

    palette.choose(theme == "dark")
    shown = _explorable(name)
    settings = plays.steps(name, shown.controls) if shown.controls else [{}]
    if QUICK or name in STILL:
        settings = settings[: 1 if name in STILL else 2]
    images, texts = [], []
    for setting in settings:
        if name not in STILL:
            plays.apply(shown.controls, setting)
        images.append(Image.open(io.BytesIO(shown.picture.image.value)).convert("RGB"))
        texts.append(shown.picture.caption)
    return images, texts, "" if name in STILL else plays.label(name, shown.controls)


STILL = {"convolution_race"}  # it measures: each setting takes seconds


def _explorable(name: str):
    """The picture; those that show measurements get some."""
    from hpcdl.widgets.pictures import PICTURES

    if name == "convolution_race":
        from torch.nn.functional import conv2d

        from hpcdl.conv import ALGORITHMS

        return PICTURES[name]({"im2col": ALGORITHMS["im2col"], "fft": ALGORITHMS["fft"], "torch": conv2d})
    if name == "message_cost":
        nbytes = [2**k for k in range(3, 25)]
        return PICTURES[name]({"one message": (nbytes, [2e-5 + 4e-10 * n for n in nbytes])}, alpha=1e-6)
    return PICTURES[name]()


def _title(name: str) -> str:
    """The first sentence of the picture's module."""
    import importlib

    doc = importlib.import_module(f"hpcdl.widgets.pictures.{name}").__doc__ or name
    return " ".join(doc.split("\n\n")[0].split())


def _save_poster(image: Image.Image, path: Path) -> None:
    image.save(path, "WEBP", lossless=True, quality=60, method=3)


def _save_animation(images: list, path: Path) -> None:
    """Lossless where that is small, since drawings are; else as good as fits into the most bytes."""
    path.write_bytes(_encoded(images, lossless=True, quality=50, method=3))
    for quality in (75, 55, 35):
        if path.stat().st_size <= (ENOUGH_BYTES if quality == 75 else MOST_BYTES):
            return
        path.write_bytes(_encoded(images, quality=quality, method=2))
    while path.stat().st_size > MOST_BYTES:
        images = images[::2]
        path.write_bytes(_encoded(images, quality=35, method=2))


def _encoded(images: list, **how) -> bytes:
    step = MILLISECONDS[len(images) >= LONG]
    durations = [step] * (len(images) - 1) + [REST * step]
    buffer = io.BytesIO()
    images[0].save(buffer, "WEBP", save_all=True, append_images=images[1:], duration=durations, loop=0, **how)
    return buffer.getvalue()
