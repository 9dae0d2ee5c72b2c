"""What every picture of a lab must do: `make()` gives it, `values` a few values of each of its controls."""

import itertools

import matplotlib
import pytest

from hpcdl.widgets.kit.style import STYLE


@pytest.fixture
def draws_its_corners():
    """Combinations of the controls' values, about `most` of them or all, are drawn with a caption that fits.

    The last of them is what axes that matplotlib itself has cleared show too: nothing of the others has stayed.
    """

    def check(make, values: dict, most: int | None = None) -> None:
        picture = make().picture
        corners = list(itertools.product(*values.values()))
        for corner in corners[:: max(1, len(corners) // (most or len(corners)))]:
            picture.render(dict(zip(values, corner, strict=True)))
            assert picture.caption
            assert "cannot be drawn" not in picture.caption, (corner, picture.caption)
            assert len(picture.figure.texts[0].get_text().splitlines()) <= 2, picture.caption
            assert picture.figure.texts[0].get_window_extent().width < picture.figure.bbox.width
        after_others = picture.image.value
        with matplotlib.rc_context(STYLE):
            for axes in picture.figure.axes:
                axes.clear()
        picture.canvas.forget()
        picture.render(dict(zip(values, corner, strict=True)))
        assert picture.image.value == after_others

    return check


@pytest.fixture
def answers_its_controls():
    """Each value of each control gives another picture, from the state it starts in with `changes`."""

    def check(make, values: dict, **changes) -> None:
        explorable = make()
        assert set(explorable.controls) == set(values)
        start = {**explorable.state, **changes}
        for control, ends in values.items():
            shown = set()
            for end in ends:
                explorable.picture.render({**start, control: end})
                shown.add(explorable.picture.image.value)
            assert len(shown) == len(ends), f"{control} does not change the picture"

    return check
