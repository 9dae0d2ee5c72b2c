"""The line-ups of labs 01 to 08: right ones are right, each impostor can be unmasked, and no input costs much."""

import ast
import importlib
import math
import random
import re
import time

import pytest
import torch

from autograder import exercises
from autograder.authors import build
from autograder.boundary.protocol import Foreign
from autograder.checks import impostors
from autograder.inside import magics, source

FIRST = exercises.LABS[1:9]
SQUARE = [(1, 1), (1, -1), (-1, 1), (-1, -1)]


@pytest.fixture(autouse=True)
def one_thread():
    """The labs' first cells ask for one: on a crowded machine two of them wait for each other, for ages."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def line_up(slug: str) -> impostors.LineUp:
    return importlib.import_module(f"autograder.exercises.{slug}.unmask").line_up


def reference(slug: str) -> list:
    """The inputs of the lab's own answer."""
    cells, namespace = [(str(i), magics.plain_python(code)) for i, code in enumerate(build.code(slug))], {}
    for label, code in source.needed(cells, [line_up(slug).name])[0]:
        exec(compile(code, label, "exec"), namespace)
    return namespace[line_up(slug).name]()


def drawn(slug: str, rng: random.Random) -> tuple:
    """An input at random; most keep the specification."""
    whole, real = rng.randint, rng.uniform
    if slug == "calculus":
        x = real(-10, 10)
        return rng.choice(("square", "cube", "sin", "exp")), rng.choice((x, torch.full((2,), x))), real(0.001, 1)
    if slug == "gradient_descent":
        return whole(0, 40), whole(0, 15), whole(1, 30), real(0.001, 10)
    if slug == "perceptron":
        n = whole(1, 8)
        points = [(whole(-32, 32) / 4, whole(-32, 32) / 4) for _ in range(n)]
        return points, [rng.choice((-1, 1)) for _ in range(n)], whole(1, 32) / 4, whole(1, 20)
    if slug == "backprop":
        n, classes, size = whole(1, 6), whole(2, 6), rng.choice((1, 100, 10_000))
        rows = [[real(-size, size) for _ in range(classes)] for _ in range(n)]
        return rows, [whole(0, classes - 1) for _ in range(n)]
    if slug == "convolution":
        return whole(1, 10), whole(1, 10), whole(1, 5), whole(1, 5), whole(1, 4), whole(0, 3)
    if slug == "stochastic_rounding":
        size = rng.choice((9, 2.0**-14, 2.0**-20, 66_000))
        return real(-size, size), rng.choice(("Fixed(4, 2)", "FP16"))
    return whole(1, 9), whole(1, 32 if slug == "ddp" else 9)


LARGEST = {
    "calculus": ("exp", torch.full((8,), -10.0), 1),
    "gradient_descent": (10_000, 999, 1000, 10),
    "perceptron": (SQUARE * 2, [1, -1, -1, 1] * 2, 0.25, 20),
    "backprop": ([[10_000] * 6] * 6, [0] * 6),
    "convolution": (10, 10, 5, 5, 1, 3),
    "stochastic_rounding": (1e6, "FP16"),
    "ddp": (9, 32),
    "collectives": (9, 2),
}


@pytest.mark.parametrize("slug", FIRST)
def test_four_of_eight_are_right(slug):
    suspects = line_up(slug).suspects
    assert "".join(suspect.name for suspect in suspects) == "ABCDEFGH"
    assert len(line_up(slug).impostors) == 4
    assert all(bool(suspect.wrong) == bool(suspect.shows) for suspect in suspects)


@pytest.mark.parametrize("slug", FIRST)
def test_no_drawn_input_that_keeps_the_rules_accuses_the_innocent(slug):
    rng, suspects = random.Random(0), line_up(slug)
    cases = [drawn(slug, rng) for _ in range(16)]
    kept = [case for case in cases if not impostors.broken_rule(suspects, case)]
    assert len(kept) >= 6
    for k in range(0, len(kept), impostors.MOST):
        assert impostors.examine(suspects, kept[k : k + impostors.MOST]).refused == []


@pytest.mark.parametrize("slug", FIRST)
def test_the_reference_s_inputs_unmask_all_and_each_unmasks_somebody(slug):
    suspects, given = line_up(slug), reference(slug)
    assert set(impostors.examine(suspects, given).unmasked) == {suspect.name for suspect in suspects.impostors}
    assert all(impostors.examine(suspects, [case]).unmasked for case in given)


@pytest.mark.parametrize("slug", FIRST)
def test_the_docstring_s_input_is_heard_and_is_not_enough(slug):
    docstring = build.references(slug)[line_up(slug).name]
    comment, shown = re.search(r"An input that (.+):\n\n +(\[.*\])\n", docstring).groups()
    found = impostors.examine(line_up(slug), ast.literal_eval(shown))
    assert found.refused == []
    assert len(found.unmasked) == {"unmasks none of them": 0, "is not yet enough": 1}[comment]


@pytest.mark.parametrize("slug", FIRST)
def test_the_lab_tells_who_they_were(slug):
    text = build.source_path(slug).read_text(encoding="utf-8")
    told = re.findall(r"^# - \*\*([A-H])\*\* (.*)\.$", text, re.MULTILINE)
    assert told == [(suspect.name, suspect.wrong) for suspect in line_up(slug).impostors]


@pytest.mark.parametrize("slug", FIRST)
def test_the_largest_input_that_is_heard_takes_little(slug):
    suspects = line_up(slug)
    assert impostors.broken_rule(suspects, LARGEST[slug]) == ""
    impostors.examine(suspects, [LARGEST[slug]])  # imports
    begin = time.process_time()
    impostors.examine(suspects, [LARGEST[slug]])
    assert time.process_time() - begin < 1


ODD = (
    *(
        10**4000,
        -(10**4000),
        0,
        True,
        None,
        math.nan,
        -math.inf,
        1j,
        "",
        "x" * 10**6,
        b"cube",
        range(10**9),
        Foreign("Odd"),
    ),
    *([], [[]], [None] * 10**5, {}, set(), torch.empty(0), torch.ones(10**6), torch.ones(2, dtype=torch.complex64)),
    *(torch.tensor(math.nan), torch.ones(1).to(torch.float8_e4m3fn), torch.float32, math.sin, [[math.nan] * 2]),
)


@pytest.mark.parametrize("slug", FIRST)
def test_any_input_is_refused_or_examined(slug):
    suspects, good = line_up(slug), LARGEST[slug]
    for i in range(len(good)):
        for odd in ODD:
            case = (*good[:i], odd, *good[i + 1 :])
            findings = impostors.Findings()
            rule = impostors.broken_rule(suspects, case)
            if not rule:
                impostors.try_input(suspects, case, "It", findings)
                assert findings.refused == []
