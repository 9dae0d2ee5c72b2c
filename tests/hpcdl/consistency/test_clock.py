"""Clocks under a staleness threshold, against an event queue that knows the rule alone."""

import heapq
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcdl.consistency import ASP, BSP, timeline

TABLES = st.integers(1, 4).flatmap(
    lambda p: st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=p, max_size=p)
    )
)
STALENESS = st.one_of(st.integers(0, 6), st.just(math.inf))


def played(seconds, s):
    """An event queue: a worker that is idle begins as soon as all others have finished enough; a set of (w, k, t)."""
    p, n = len(seconds), len(seconds[0])
    finished, busy, started, queue, now = [0] * p, [False] * p, {}, [], 0.0
    while True:
        for w in range(p):
            if not busy[w] and finished[w] < n and finished[w] - min(finished) <= s:
                busy[w], started[w, finished[w]] = True, now
                heapq.heappush(queue, (now + seconds[w][finished[w]], w))
        if not queue:
            return started
        now = queue[0][0]
        while queue and queue[0][0] == now:  # all that ends in one moment
            w = heapq.heappop(queue)[1]
            busy[w], finished[w] = False, finished[w] + 1


@given(TABLES, STALENESS)
def test_the_recurrence_is_what_the_rule_gives_event_by_event(seconds, s):
    found, right = timeline(seconds, s), played(seconds, s)
    assert {(w, k): t for (w, k), t in np.ndenumerate(found.start)} == right
    np.testing.assert_array_equal(found.end - found.start, seconds)


@given(TABLES)
def test_bsp_and_asp_are_its_ends(seconds):
    table = np.array(seconds, dtype=float)
    together = np.cumsum(table.max(axis=0))
    np.testing.assert_array_equal(timeline(table, BSP).start, np.tile(np.r_[0, together[:-1]], (len(table), 1)))
    np.testing.assert_array_equal(timeline(table, ASP).end, np.cumsum(table, axis=1))
    assert not timeline(table, ASP).waiting.any()


@given(TABLES, st.integers(0, 5))
def test_more_staleness_makes_nobody_later_and_none_is_ahead_by_more(seconds, s):
    looser, tighter = timeline(seconds, s + 1), timeline(seconds, s)
    assert (looser.end <= tighter.end).all()
    assert tighter.leads().max() <= s
    assert ((tighter.waiting >= 0) & (tighter.waiting <= 1)).all()


def test_a_straggler_of_three():
    found = timeline([[3.0] * 4, [1.0] * 4], 1)
    np.testing.assert_array_equal(found.start[1], [0, 1, 3, 6])
    np.testing.assert_array_equal(found.leads(), [[0, 0, 0, 0], [0, 1, 1, 1]])
    np.testing.assert_allclose(found.waiting, [0, 3 / 7])
    assert found.seconds == 12
    assert found.steps_per_second == (4 + 2) / 7


def test_staleness_counts_the_updates_of_others_meanwhile():
    found = timeline([[4.0, 4.0], [1.5, 1.5]], ASP)
    np.testing.assert_array_equal(found.staleness(), [[2, 0], [0, 0]])


def test_a_thousand_workers_take_no_time():
    seconds = np.random.default_rng(0).exponential(size=(1024, 100))
    begin = time.process_time()
    for s in (0, 1, 3, 10, math.inf):
        timeline(seconds, s)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("staleness", [-1, 0.5, math.nan, True])
def test_a_staleness_that_is_none_is_refused(staleness):
    with pytest.raises(ValueError, match=r"staleness is .*a whole number"):
        timeline([[1.0]], staleness)


@pytest.mark.parametrize(("seconds", "said"), [([1.0], "shape"), ([[1.0, -2.0]], r"seconds\[0\]\[1\] is -2.0")])
def test_times_that_are_none_are_refused(seconds, said):
    with pytest.raises(ValueError, match=said):
        timeline(seconds)
