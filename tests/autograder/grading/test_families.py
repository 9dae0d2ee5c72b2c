"""Each exercise opens the families that its right answers use, and closes those that could be its answer."""

import json
import pkgutil
from collections import Counter

import pytest

from autograder import exercises
from autograder.authoring import families_opened
from autograder.grading.families import PATH, derived, family_of, text
from autograder.inside import families
from autograder.inside.operators import matching

EXERCISES = [exercise for slug in exercises.LABS for exercise in exercises.load(slug).exercises.values()]


def test_every_exercise_has_a_row():
    rows = families_opened()
    assert list(rows) == [exercise.id for exercise in EXERCISES], "run `python -m autograder.grading.families SLUG`"
    assert {family for row in rows.values() for family in row} <= set(families.FAMILIES)
    assert PATH.read_text(encoding="utf-8") == text(json.loads(PATH.read_text(encoding="utf-8")))


@pytest.mark.long  # runs every right answer
@pytest.mark.parametrize("slug", exercises.LABS)
def test_the_rows_are_the_derived_ones(slug):
    found = dict(derived(exercises.load(slug)))
    assert found == {name: row for name, row in families_opened().items() if name.partition(".")[0] == slug}


def test_no_operator_is_in_two_families():
    counts = Counter(name for patterns in families.FAMILIES.values() for name in matching(patterns, 0))
    assert [name for name, times in counts.items() if times > 1] == []
    assert len(counts) > 500


@pytest.mark.parametrize(
    "call",
    ["aten::add", "aten::sum", "aten::mm", "aten::where", "aten::index", "aten::_softmax", "aten::relu", "numpy.mean"],
)
def test_what_every_answer_needs_is_in_none(call):
    assert family_of(call) == ""


@pytest.mark.parametrize(
    ("call", "family"),
    [
        ("aten::convolution", "networks"),
        ("aten::nll_loss_forward", "networks"),
        ("aten::_fused_sgd_", "optimizers"),
        ("quantized::softmax", "quantized"),
        ("scipy.linalg.toeplitz", "scipy"),
        ("mpmath.mp.sigmoid", "packages"),
        ("torch.ao.quantization.fx._decomposed.quantize_per_tensor", "tools"),
    ],
)
def test_what_may_be_an_answer_is_in_one(call, family):
    assert family_of(call) == family


def test_an_exercise_may_open_a_family_by_its_text():
    exercise = exercises.load("perceptron").exercises["fit"]
    assert "sklearn" in exercise.closed
    exercise.offers = ("sklearn",)
    try:
        assert "sklearn" not in exercise.closed
        assert "scipy" in exercise.closed
    finally:
        exercise.offers = ()


def lost(names: tuple[str, ...]) -> list[str]:
    """Return the names that open nothing: no family, and no name in hpcdl."""
    found = []
    for name in names:
        try:
            name in families.FAMILIES or pkgutil.resolve_name(name)
        except (AttributeError, ImportError):
            found.append(name)
    return found


def test_what_an_exercise_opens_exists():
    """What its text offers, and what `allowed.json` says of the reference."""
    opened = {exercise.id: lost(exercise.opened) for exercise in EXERCISES}
    assert {exercise: names for exercise, names in opened.items() if names} == {}, (
        "correct `offers`, or rebuild the lab"
    )
    assert lost(("attention", "hpcdl.nn.mlp.feedforward", "hpcdl.nn.mlp.feed", "hpcdl.none.f")) == [
        "hpcdl.nn.mlp.feed",
        "hpcdl.none.f",
    ]
