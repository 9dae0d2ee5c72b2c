"""A picture that plays without a kernel: its frames as one WebP animation, and a still one for print.

`plays` says what moves. The site and `hpcdl slides` show films.
"""

import importlib
import io
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from hpcdl.widgets import plays
from hpcdl.widgets.kit import palette

MOST_BYTES = 400_000  # of an animation
ENOUGH_BYTES = 200_000  # a lossless animation up to this size is kept as it is
MILLISECONDS = {True: 220, False: 1200}  # a frame of a sweep; a frame of a few settings
LONG = 10  # frames from which on it is a sweep
REST = 4  # frames' time that the last frame stays
STILL = {"convolution_race"}  # it measures: each setting takes seconds


@dataclass
class Film:
    """The frames of a picture, the sentence of each, its title, and the label of what moves."""

    title: str
    moves: str
    images: list[Image.Image] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def still(self) -> int:
        """Return which frame stands still: one on the way, since the ends show least."""
        return (2 * len(self.images)) // 3 if len(self.images) > 2 else len(self.images) - 1

    @property
    def step(self) -> int:
        """Milliseconds of a frame."""
        return MILLISECONDS[len(self.images) >= LONG]

    def poster(self) -> bytes:
        """Return the still frame as WebP."""
        buffer = io.BytesIO()
        self.images[self.still].save(buffer, "WEBP", lossless=True, quality=60, method=3)
        return buffer.getvalue()

    def animation(self) -> bytes:
        """Return an animated WebP: lossless if small, since drawings are; else as good as fits into `MOST_BYTES`."""
        images, found = self.images, _encoded(self.images, self.step, lossless=True, quality=50, method=3)
        if len(found) <= ENOUGH_BYTES:
            return found
        for quality in (75, 55, 35):
            found = _encoded(images, self.step, quality=quality, method=2)
            if len(found) <= MOST_BYTES:
                return found
        while len(found) > MOST_BYTES and len(images) > 1:
            images = images[::2]
            found = _encoded(images, self.step, quality=35, method=2)
        return found

    def told(self, animation: bytes) -> list[str]:
        """Return the sentence of each frame of an animation: it has fewer frames than images where equal ones were
        merged, or every other one was left out for its size."""
        starts = list[int]()
        with Image.open(io.BytesIO(animation)) as shown:
            for number in range(getattr(shown, "n_frames", 1)):
                shown.seek(number)
                shown.load()
                starts.append(round(shown.info.get("timestamp", 0) / self.step))
            kept = starts[-1] + round(shown.info.get("duration", REST * self.step) / self.step) - (REST - 1)
        texts = self.texts
        while len(texts) > max(1, kept):  # as `animation` does
            texts = texts[::2]
        return [texts[start] for start in starts]


def shoot(name: str, dark: bool = False, most: int | None = None) -> Film:
    """Draw the frames of the picture `name`, at most `most`, in the colours of light or dark pages."""
    palette.choose(dark)
    try:
        shown = _explorable(name)
        settings = [{}] if name in STILL else plays.steps(name, shown.controls)[:most]
        film = Film(title_of(name), "" if name in STILL else plays.label(name, shown.controls))
        for setting in settings:
            plays.apply(shown.controls, setting)
            film.images.append(Image.open(io.BytesIO(shown.picture.image.value)).convert("RGB"))
            film.texts.append(shown.picture.caption)
        return film
    finally:
        palette.choose(False)


def title_of(name: str) -> str:
    """Return the first sentence of the picture's module."""
    doc = importlib.import_module(f"hpcdl.widgets.pictures.{name}").__doc__ or name
    return " ".join(doc.split("\n\n")[0].split())


def _explorable(name: str) -> Any:
    """Return the picture; those that show measurements get some."""
    from hpcdl.widgets.pictures import PICTURES

    if name == "convolution_race":
        from torch.nn.functional import conv2d

        from hpcdl.conv import ALGORITHMS

        return PICTURES[name]({"im2col": ALGORITHMS["im2col"], "fft": ALGORITHMS["fft"], "torch": conv2d})
    if name == "message_cost":
        nbytes = [2**k for k in range(3, 25)]
        return PICTURES[name]({"one message": (nbytes, [2e-5 + 4e-10 * n for n in nbytes])}, alpha=1e-6)
    return PICTURES[name]()


def _encoded(images: list[Image.Image], step: int, **how: Any) -> bytes:
    durations = [step] * (len(images) - 1) + [REST * step]
    buffer = io.BytesIO()
    images[0].save(buffer, "WEBP", save_all=True, append_images=images[1:], duration=durations, loop=0, **how)
    return buffer.getvalue()
