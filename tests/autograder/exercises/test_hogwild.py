"""Lab `hogwild`: its oracles agree with the library, torch and closed forms."""

import itertools

import pytest
import torch

from autograder.exercises.hogwild import finish, hogwild, two_loop

pytestmark = pytest.mark.labs


def test_overlap_by_sets_is_overlap_by_a_table():
    edges = hogwild.edges_of(torch.Generator().manual_seed(3), 20, 9, 4)
    omega, share, rho = hogwild.by_pairs(edges, 9)
    assert omega == max(map(len, edges))
    assert share == max(sum(v in edge for edge in edges) for v in range(9)) / 20
    assert rho == max(sum(bool(set(a) & set(b)) for b in edges) for a in edges) / 20


def test_every_update_of_a_mixed_schedule_keeps_its_own_order():
    rng = torch.Generator().manual_seed(4)
    edges = hogwild.edges_of(rng, 6, 5, 3)
    found = hogwild.mixed(rng, edges, 3)
    for k, edge in enumerate(edges):
        events = [event for event in found if event[1] == k]
        assert sorted(events) == sorted(hogwild.events_of(k, edge))
        assert events[: len(edge)] == [("read", k, v) for v in edge]
        assert all(events.index(("load", k, v)) < events.index(("store", k, v)) for v in edge)


def test_the_dense_direction_solves_a_quadratic_that_it_knows():
    history = two_loop.History(4, 0, 1, torch.Generator().manual_seed(5))
    eye = torch.eye(4).double()
    curvature = torch.tensor([1.0, 2.0, 3.0, 4.0]).double()
    history.s, history.y, history.m = list(eye), list(curvature.diag()), 4
    assert torch.allclose(history.dense(), -history.g / curvature)


def test_backups_never_take_longer():
    tasks = [3.0, 1.0, 2.0, 2.0]
    for speeds in ([1.0, 1.0], [1.0, 0.25], [2.0, 1.0, 0.1]):
        alone = finish.on_a_clock(tasks, speeds, False)
        best = min(
            max(sum(t for t, i in zip(tasks, nodes, strict=True) if i == node) / s for node, s in enumerate(speeds))
            for nodes in itertools.product(range(len(speeds)), repeat=len(tasks))
        )
        assert best <= alone
        assert finish.on_a_clock(tasks, speeds, True) <= alone
