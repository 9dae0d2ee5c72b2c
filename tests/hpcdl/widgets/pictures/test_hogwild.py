"""The picture of lab `hogwild`: what it calls lost is lost, and sparse updates seldom meet."""

import pytest

from hpcdl.widgets.pictures import lost_updates
from hpcdl.widgets.pictures.lost_updates import UPDATES, events, fates, shares

pytestmark = pytest.mark.labs

VALUES = {"n": (2, 8, 64), "p": (1, 4, 6)}


def test_every_corner_is_drawn(draws_its_corners):
    draws_its_corners(lost_updates.explorable, VALUES)


def test_every_control_changes_the_picture(answers_its_controls):
    answers_its_controls(lost_updates.explorable, VALUES)


@pytest.mark.parametrize(("n", "p"), [(2, 2), (6, 4), (12, 6), (64, 6)])
def test_lost_is_what_a_replay_loses(n, p):
    """Replay the accesses with a set of updates for each component: what a store does not contain is lost."""
    found = events(n, p)
    memory, register, all_stores = {v: set() for v in range(n)}, {}, {v: set() for v in range(n)}
    for e in found:
        me = (e.thread, e.k)
        if e.op == "load":
            register[me, e.v] = set(memory[e.v])
        elif e.op == "store":
            memory[e.v] = register[me, e.v] | {me}
            all_stores[e.v].add(me)
    lost = set().union(*(all_stores[v] - memory[v] for v in range(n)))
    said = {me for me, fate in fates(found).items() if fate == "lost"}
    assert said >= lost  # a store that was undone may come back only with a register that had it
    assert len(fates(found)) == p * UPDATES
    assert bool(said) == bool(lost)


def test_one_thread_loses_nothing_and_sparse_ones_little():
    assert set(fates(events(2, 1)).values()) == {"clean"}
    assert shares(64, 4)["lost"] < 0.1 * shares(2, 4)["lost"]
    assert shares(6, 6)["lost"] > shares(6, 2)["lost"]
