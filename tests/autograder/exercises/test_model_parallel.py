"""Lab `model_parallel`: its oracles agree with the library, torch and closed forms."""

import pytest

from autograder.exercises.model_parallel import pipelines, published
from hpcdl.cost.pipeline import play
from hpcdl.parallel import schedules

pytestmark = pytest.mark.labs


@pytest.mark.parametrize("name", ["one_f_one_b", "zb_h1", "zb_h2"])
@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 3), (4, 4), (5, 12), (6, 3)])
def test_the_checks_schedules_and_simulation_are_the_librarys(name, p, m):
    orders = getattr(published, name)(p, m)
    assert orders == getattr(schedules, name)(p, m)
    ours, theirs = pipelines.play(orders, 3.0, 2.0, 1.0, 0.25), play(orders, 3.0, 2.0, 1.0, message=0.25)
    assert ours.makespan == pytest.approx(theirs.makespan)
    assert ours.seconds == pytest.approx(theirs.seconds)
    assert [pipelines.held(order) for order in orders] == [schedules.in_flight(order) for order in orders]


def test_what_is_published_stands_in_the_library_too():
    from hpcdl.cost.published.pipelines import ZERO_BUBBLE

    for p, m, seconds, (one, h1, h2) in published.TABLE_5:
        times, printed, _ = next(row[3][m] for row in ZERO_BUBBLE.values() if row[0] == p)
        assert times == seconds
        assert [printed[0], *printed[2:]] == pytest.approx([100 * one, 100 * h1, 100 * h2])
