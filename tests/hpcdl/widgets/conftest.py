"""What every picture of a lab must do: `make()` gives it, `values` a few values of each of its controls."""

import itertools

import pytest


@pytest.fixture
def draws_its_corners():
    """Combinations of the controls' values, about `most` of them, are drawn with a caption that fits."""

    def check(make, values: dict, most: int) -> None:
        picture = make().picture
        corners = list(itertools.product(*values.values()))
        for corner in corners[:: max(1, len(corners) // most)]:
            picture.render(dict(zip(values, corner, strict=True)))
            assert picture.caption
            assert "cannot be drawn" not in picture.caption
            assert len(picture.figure.texts[0].get_text().splitlines()) <= 2
            assert picture.figure.texts[0].get_window_extent().width < picture.figure.bbox.width

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
