"""The best algorithm, and the sizes at which it changes."""

import itertools

import pytest

from hpcdl.cost.collectives import ALL_REDUCE
from hpcdl.cost.selection import best, best_map, crossovers, ranking

ALPHA, BETA, GAMMA = 1e-5, 1e-9, 2e-10


def test_few_bytes_want_few_rounds_and_many_bytes_want_small_shares():
    flat = ("naive", "ring", "tree", "recursive_doubling")
    assert best(16, 64, ALPHA, BETA, GAMMA, algorithms=flat) == "recursive_doubling"
    assert best(16, 1 << 26, ALPHA, BETA, GAMMA, algorithms=flat) == "ring"
    assert best(16, 1 << 26, ALPHA, BETA, GAMMA) == "rabenseifner"


def test_a_ranking_has_all_seconds_in_order():
    order = ranking(9, 9000, ALPHA, BETA)
    assert set(order) == set(ALL_REDUCE)
    assert list(order.values()) == sorted(order.values())


def test_the_map_has_ranks_for_rows_and_sizes_for_columns():
    assert best_map([16], [64, 1 << 26], ALPHA, BETA, algorithms=("tree", "ring")) == [["tree", "ring"]]


@pytest.mark.parametrize("p", [2, 3, 5, 16, 33, 1024])
def test_best_changes_exactly_at_the_crossovers(p):
    stretches = crossovers(p, ALPHA, BETA, GAMMA, largest=1 << 24)
    assert stretches[0].nbytes == 4
    for stretch in stretches:
        assert best(p, stretch.nbytes, ALPHA, BETA, GAMMA) == stretch.algorithm
    for before, after in itertools.pairwise(stretches):
        assert before.algorithm != after.algorithm
        assert before.nbytes < after.nbytes
        assert best(p, after.nbytes - 4, ALPHA, BETA, GAMMA) == before.algorithm


def test_a_crossover_is_where_the_two_formulas_meet():
    _, change = crossovers(16, ALPHA, BETA, algorithms=("tree", "ring"))
    # 2 log p (a + n b) = 2 (p-1) (a + n/p b), for n: uneven chunks move it by less than a chunk's element per step.
    assert change.nbytes == pytest.approx((15 - 4) * ALPHA / ((4 - 15 / 16) * BETA), rel=0.01)


def test_an_unknown_algorithm_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match=f"'rign'; the all-reduce algorithms are {', '.join(ALL_REDUCE)}$"):
        best(4, 4, ALPHA, BETA, algorithms=["rign"])
