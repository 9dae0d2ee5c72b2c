"""A whole training: checkpoints, failures, evaluations."""

import random

import pytest

from hpcdl.cost.run import checkpoint_interval, run

HOUR = 3600.0


def played(work, interval, write, between_failures, restart, rng):
    """Seconds of a training that loses all since its last checkpoint whenever it fails."""
    clock, done, fails = 0.0, 0.0, rng.expovariate(1 / between_failures)
    while done < work:
        step = min(interval, work - done)
        if clock + step + write <= fails:
            clock, done = clock + step + write, done + step
        else:
            clock = fails + restart
            fails = clock + rng.expovariate(1 / between_failures)
    return clock


def test_expected_seconds_are_those_of_played_failures():
    rng = random.Random(0)
    options = {"write": 60.0, "between_failures": 4 * HOUR, "restart": 300.0}
    predicted = run(1.0, 1, 100 * HOUR, **options)
    interval = checkpoint_interval(60.0, 4 * HOUR)
    mean = sum(played(100 * HOUR, interval, 60.0, 4 * HOUR, 300.0, rng) for _ in range(100)) / 100
    assert predicted.seconds == pytest.approx(mean, rel=0.01)


def test_no_other_interval_is_better():
    def seconds(interval):
        return run(1.0, 1, 100 * HOUR, write=60.0, between_failures=4 * HOUR, interval=interval).seconds

    best = checkpoint_interval(60.0, 4 * HOUR)
    around = [best * factor for factor in (0.25, 0.5, 0.8, 1.25, 2, 4)]
    assert all(seconds(best) <= 1.001 * seconds(interval) for interval in around)


def test_without_failures_only_work_is_left():
    plain = run(0.5, 100, 1e5, epochs=2, evaluation=30.0)
    assert plain == (1000.0, 60.0, 0.0, 0.0, 0.0)
    kept = run(0.5, 100, 1e5, write=10.0, interval=100.0)
    assert kept.checkpoints == pytest.approx(500 / 100 * 10)
    assert kept.lost == kept.restarts == 0


def test_a_training_that_never_ends_is_refused():
    with pytest.raises(ValueError, match="between_failures is 100 s; a failure costs"):
        run(1.0, 1, 1e6, write=60.0, between_failures=100.0, restart=60.0)
    with pytest.raises(ValueError, match="write is 0; it is more than 0"):
        checkpoint_interval(0, 100.0)
    with pytest.raises(ValueError, match="batch is 0; it is more than 0"):
        run(1.0, 0, 10)
    assert checkpoint_interval(80.0, 100.0) == 100.0


@pytest.mark.parametrize("interval", [0, 0.0, -1.0, float("nan")])
def test_an_interval_of_nothing(interval):
    with pytest.raises(ValueError, match=f"interval is {interval!r}; it is more than 0"):
        run(1.0, 10, 1000, write=1.0, between_failures=1e4, interval=interval)
