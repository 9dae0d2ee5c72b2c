"""Reference answers: the examples in their docstrings hold, they pass with any seed, and checks share 100 points."""

import doctest

import pytest

from autograder import exercises
from autograder.grading.run import run_exercise
from autograder.sessions.local import LocalSession

pytestmark = pytest.mark.each_lab()  # of the second tier, also for one lab

EXAMPLES = {  # lab: functions with an example
    "attention": "attention absorb flash split merge block_work stripes route balance",
    "consistency": "clocks largest_stable_lr weights rounds_needed",
    "hogwild": "overlap plan finish fc_bytes",
    "machines": "conv linear attention work transformer_flops utilization train_seconds roof place stalls waits "
    "smallest_batch activation pooling batch_norm hours",
    "model_parallel": "share volume one_weird_trick gpipe one_f_one_b interleaved zb_h1 bubble design",
    "scaling": "wfbp fuse lr_at input_rate waiting samples predict",
    "sharding": "memory largest activations plan bounds offload",
}
LABS = {slug: exercises.load(slug) for slug in EXAMPLES}


@pytest.mark.parametrize(("slug", "name"), [(slug, name) for slug, names in EXAMPLES.items() for name in names.split()])
def test_example_holds(reference, slug, name):
    (example,) = doctest.DocTestFinder(recurse=False).find(reference[name], name, globs=reference)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("slug", "name"), [(slug, name) for slug, lab in LABS.items() for name in lab.exercises])
def test_reference_passes_with_any_seed(reference, slug, name, seed):
    result = run_exercise(LABS[slug].exercises[name], LocalSession(reference), lambda check: 1000 * seed + len(check))
    assert not [(check.name, check.message, check.detail) for check in result.checks if not check.passed]


@pytest.mark.parametrize("slug", LABS)
def test_checks_share_100_points(slug):
    assert LABS[slug].points == 100
    points = [check.points for exercise in LABS[slug].exercises.values() for check in exercise.checks.values()]
    assert sum(points) == pytest.approx(100)
