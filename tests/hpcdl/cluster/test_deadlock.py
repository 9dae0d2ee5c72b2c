"""Who is stuck, from where the ranks stand: a circle is a deadlock, a slow message is none."""

import pytest

from hpcdl.cluster.deadlock import Lookout, explain, stuck


def waits(side=None, peer=None, number=1, alone=True):
    ranks = [] if side is None else [(side, peer)]
    return {
        "text": "barrier()" if side is None else f"{side}({peer})",
        "ranks": ranks,
        "number": number,
        "alone": alone,
    }


@pytest.mark.parametrize(
    ("waiting", "returned", "expected"),
    [
        ({0: waits("source", 1), 1: waits("source", 0)}, set(), [0, 1]),
        ({0: waits("dest", 1), 1: waits("dest", 2), 2: waits("dest", 0)}, set(), [0, 1, 2]),
        ({3: waits("source", 0), 0: waits("source", 1), 1: waits("source", 0)}, set(), [0, 1]),
        ({0: waits("source", 0)}, set(), [0]),
        ({0: waits("source", 1)}, {1}, [0]),
        ({0: waits("source", 2), 2: waits("source", 1)}, {1}, [2]),
        ({0: waits()}, {1}, [0]),
        # not stuck:
        ({0: waits("source", 1), 1: waits("dest", 0)}, set(), []),  # the message is on its way
        ({0: waits("source", 1, alone=False), 1: waits("source", 0)}, set(), []),  # it sends at the same time
        ({0: waits("source", 1)}, set(), []),  # 1 computes
        ({0: waits(), 1: waits()}, set(), []),  # 2 will come
        ({}, {0, 1}, []),
    ],
)
def test_ranks_that_wait_for_each_other_are_stuck(waiting, returned, expected):
    assert stuck(waiting, returned) == expected
    assert bool(explain(waiting, returned)) == bool(expected)


def test_the_lookout_waits_until_the_same_waits_have_lasted():
    lookout = Lookout(seconds=2)
    circle = {0: waits("source", 1), 1: waits("source", 0)}
    assert not lookout.sees_deadlock(circle, set(), now=10)
    assert not lookout.sees_deadlock(circle, set(), now=11)
    circle[1]["number"] = 2  # rank 1 has gone on and waits again
    assert not lookout.sees_deadlock(circle, set(), now=12.5)
    assert not lookout.sees_deadlock(circle, set(), now=14)
    assert lookout.sees_deadlock(circle, set(), now=14.5)
    assert not lookout.sees_deadlock({}, set(), now=15)
