"""Hands that are faster than the pictures: play, and at the same time drag every other control; and one slider alone.

JupyterLab sends a control's first message to the kernel's main thread and later ones to a thread of their own.
"""

import ast
import itertools
import json
import random

import pytest

from autograder.authors import build
from hpcdl.widgets.pictures import PICTURES

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(600)]

GIVEN = {"message_cost": '{"one message": ([4.0, 4e4, 4e6], [1e-5, 2e-5, 1e-3])}'}
WATCH = """
import threading
from hpcdl.widgets.kit.picture import Picture
from hpcdl.widgets.pictures import PICTURES

at_work, overlaps, threads, broken, drawings, shown = set(), 0, set(), [], 0, []

def watched(self, state, before=Picture._drawn):
    global overlaps, drawings
    me = threading.get_ident()
    overlaps += bool(at_work - {me})
    at_work.add(me)
    try:
        png = before(self, state)
    finally:
        at_work.discard(me)
    drawings += 1
    threads.add(me)
    if "cannot be drawn" in self.caption:
        broken.append(self.caption)
    return png

Picture._drawn = watched
"""
REPORT = """
import json
outdated = []
for one in shown:
    seen = one.picture.image.value
    one.picture.render(one.state)
    outdated += [] if seen == one.picture.image.value else [one.picture.caption]
found = {"overlaps": overlaps, "threads": len(threads), "broken": broken, "drawings": drawings, "outdated": outdated}
print("FOUND", json.dumps(found))
"""


def pictures_of(source) -> list[str]:
    """The pictures that a lab imports."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports if node.module == "hpcdl.widgets.pictures" for alias in node.names]
    return [name for name in names if name in PICTURES]


LABS = {build.slug_of(source): pictures_of(source) for source in build.sources()}


def test_every_picture_is_in_a_lab_or_in_the_map():
    assert {name for names in LABS.values() for name in names} | {"calibration"} == set(PICTURES)


def cells_of(names: list[str]) -> list[str]:
    """A cell that watches, one for each picture, and one that reports."""
    return [
        WATCH,
        *(f"shown.append(PICTURES[{name!r}]({GIVEN.get(name, '')})); shown[-1]" for name in names),
        REPORT,
    ]


class Hand:
    """Moves the controls of one picture at random, the same way every time, and waits for nothing."""

    def __init__(self, lab, cell):
        self.lab, self.random = lab, random.Random(0)
        self.controls = [(self.drag, handle) for handle in cell.get_by_role("slider").all()]
        self.controls += [(self.select, options) for options in cell.locator("select").all()]
        self.controls += [(lambda box: box.click(), box) for box in cell.locator("input[type=checkbox]").all()]
        self.play = cell.locator(".widget-play button").all()[:1]

    def drag(self, handle) -> None:
        box, mouse = handle.bounding_box(), self.lab.page.mouse
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        mouse.move(x, y)
        mouse.down()
        mouse.move(x + self.random.uniform(-90, 90), y, steps=4)
        mouse.up()

    def select(self, options) -> None:
        options.select_option(index=self.random.randrange(options.locator("option").count()))

    def move(self, most: int) -> None:
        """Start to play, then move each pair of controls in turn, `most` moves in all."""
        for button in self.play:
            button.click()
        pairs = itertools.cycle(itertools.permutations(self.controls, 2) if len(self.controls) > 1 else [self.controls])
        moves = itertools.chain.from_iterable(pairs)
        for action, control in itertools.islice(moves, most):
            action(control)
        for button in self.play:
            if button.locator(".fa-pause").count():  # it has not come to its end by itself
                button.click()


def play_and_drag(slug: str, most: int, open_cells) -> dict:
    """Make `most` moves on the pictures of a lab; what the kernel saw."""
    names = LABS[slug]
    lab = open_cells(f"{slug}_moves.ipynb", cells_of(names))
    lab.run_cell("Picture._drawn = watched", seconds=60)
    for name in names:
        code = f"PICTURES['{name}']"
        lab.run_cell(code, seconds=90)
        Hand(lab, lab.explorable(code).cell).move(-(-most // len(names)))
    lab.page.wait_for_timeout(1500)
    lab._wait(lambda: lab.kernel_state() == "idle", 60, "the pictures to follow")
    lab.screenshot(f"moves_{slug}")
    report = lab.run_cell("FOUND").text_content()
    return json.loads(report.split("FOUND", 1)[1])


def is_sound(found: dict) -> None:
    assert found["threads"] > 1, "the moves came by one thread: this test shows nothing"
    assert found["drawings"] > 10
    assert (found["overlaps"], found["broken"], found["outdated"]) == (0, [], [])


def test_play_and_drags_on_the_pictures_of_lab_02(open_cells):
    is_sound(play_and_drag("gradient_descent", 45, open_cells))


@pytest.mark.long
@pytest.mark.parametrize("slug", LABS)
def test_two_hundred_moves_on_every_lab(slug, open_cells):
    is_sound(play_and_drag(slug, 200, open_cells))


# -- and how soon a picture follows one slider ------------------------------------------------------------------------

ASKED = 80  # milliseconds, the median of 10 moves on a quiet machine
LATE = 2 * ASKED  # on a busy one


def milliseconds_of(explorable) -> dict[str, float]:
    """Median milliseconds of each slider that changes the picture at once, by its label."""
    from playwright.sync_api import Error as PlaywrightError  # here: the fixtures skip without it

    found = {}
    for number, slider in enumerate(explorable.sliders):
        now, low, high = (float(slider.get_attribute(f"aria-value{x}")) for x in ("now", "min", "max"))
        if low == high or not slider.is_visible():
            continue
        back_and_forth = ("ArrowLeft", "ArrowRight") if now > low else ("ArrowRight", "ArrowLeft")
        label = slider.locator("xpath=ancestor::*[contains(@class, 'widget-inline-hbox')][1]").text_content()
        try:
            found[f"{number} {label}"] = explorable.milliseconds(number, back_and_forth, moves=10)
        except PlaywrightError as error:  # one that what is chosen makes no use of, such as the batch without batches
            if "no new picture" not in str(error):
                raise
    assert found or not explorable.sliders, "no slider changes the picture"
    return found


@pytest.mark.long
@pytest.mark.parametrize("slug", LABS)
def test_every_picture_follows_its_sliders(slug, open_cells):
    names = LABS[slug]
    lab = open_cells(
        f"{slug}_sliders.ipynb",
        ["from hpcdl.widgets.pictures import PICTURES", *(f"PICTURES['{n}']({GIVEN.get(n, '')})" for n in names)],
    )
    lab.run_cell("import PICTURES", seconds=60)
    late = {}
    for name in names:
        code = f"PICTURES['{name}']"
        lab.run_cell(code, seconds=90)
        for slider, timed in milliseconds_of(lab.explorable(code)).items():
            print(f"{slug} {name}, slider {slider}: {timed:.0f} ms{' LATE' * (timed > ASKED)}")
            if timed > LATE:
                late[name, slider] = timed
    assert not late
