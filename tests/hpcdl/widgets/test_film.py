"""An animation's frames and their sentences belong together, whatever the encoder merged or left out."""

import io

import numpy as np
import pytest
from PIL import Image

from hpcdl.widgets import film
from hpcdl.widgets.film import Film


def made(shades) -> Film:
    """A film of one colour an image; its sentence is the shade."""
    images = [Image.new("RGB", (64, 48), (shade, 255 - shade, 128)) for shade in shades]
    return Film("A title.", "the shade", images, [str(shade) for shade in shades])


def shades_of(animation: bytes) -> list[int]:
    with Image.open(io.BytesIO(animation)) as shown:
        found = []
        for number in range(getattr(shown, "n_frames", 1)):
            shown.seek(number)
            found.append(int(np.asarray(shown.convert("RGB"))[24, 32, 0]))
    return found


@pytest.mark.parametrize(
    "shades",
    [
        [0],
        [0, 200],
        [0, 100, 200],
        [*range(0, 240, 20)],
        [0, 0, 0, 90],
        [0, 90, 90, 90, 10, 10, 200, 30, 30, 60, 60, 60],
    ],
    ids=str,
)
def test_each_frame_has_the_sentence_of_its_image(shades):
    shown = made(shades)
    animation = shown.animation()
    assert shown.told(animation) == [str(shade) for shade in shades_of(animation)]


@pytest.mark.parametrize("number", [3, 10, 11, 13, 24])
def test_frames_that_were_left_out_take_their_sentences_along(number, monkeypatch):
    """A film too large for its limit has every other image, or every fourth; the last may be left out."""
    shown = made(list(range(0, 10 * number, 10)))
    whole = len(film._encoded(shown.images, shown.step, quality=35, method=2))
    monkeypatch.setattr(film, "ENOUGH_BYTES", 0)
    for part in (0.8, 0.4, 0.2):
        monkeypatch.setattr(film, "MOST_BYTES", int(part * whole))
        animation = shown.animation()
        found = [round(shade / 10) * 10 for shade in shades_of(animation)]  # lossy
        assert len(found) < number
        assert shown.told(animation) == [str(shade) for shade in found]
