"""The formulas are the simulated machine's virtual time, messages and bytes, whatever p and n."""

import math

import pytest
import torch

from hpcdl import collectives
from hpcdl.comm import simulate
from hpcdl.cost import collectives as cost
from hpcdl.cost import textbook
from hpcdl.cost.collectives import ALL_REDUCE, TRAFFIC, hierarchical, parameter_server

ALPHA, BETA, GAMMA = 3e-6, 2e-10, 5e-11
RANKS = [*range(1, 10), 16, 33]
NAMES = [name for name in collectives.ALL_REDUCE if name in ALL_REDUCE]


def sizes(p):
    return sorted({1, p - 1, p, 1000, 100003})


def measured(f, p, n, dtype=torch.float32, **options):
    run = simulate(lambda comm: f(torch.ones(n, dtype=dtype), comm, **options), p, alpha=ALPHA, beta=BETA, gamma=GAMMA)
    sends = [event for event in run.trace if event.op == "send"]
    assert sum(event.nbytes for event in sends) == sum(run.bytes_sent)
    return run.seconds, len(sends), sum(run.bytes_sent)


def test_collectives_and_formulas_correspond():
    assert set(collectives.ALL_REDUCE) == set(ALL_REDUCE) == set(TRAFFIC)


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("name", NAMES)
def test_an_all_reduce_costs_what_the_simulated_machine_takes(name, p):
    for n in sizes(p):
        seconds, messages, nbytes = measured(collectives.ALL_REDUCE[name], p, n)
        assert ALL_REDUCE[name](p, 4 * n, ALPHA, BETA, GAMMA) == pytest.approx(seconds, rel=1e-9, abs=1e-18), n
        assert TRAFFIC[name](p, 4 * n) == (messages, nbytes), n


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("alpha", "beta", "gamma"), [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.1, 10.0)]
)
def test_each_term_of_a_formula_is_right_by_itself(name, alpha, beta, gamma):
    for p, n in ((3, 7), (5, 2), (6, 20), (7, 6), (12, 100)):
        run = simulate(
            lambda comm, n=n: collectives.ALL_REDUCE[name](torch.ones(n), comm), p, alpha=alpha, beta=beta, gamma=gamma
        )
        assert ALL_REDUCE[name](p, 4 * n, alpha, beta, gamma) == pytest.approx(run.seconds, rel=1e-9), (p, n)


@pytest.mark.parametrize("name", ["broadcast", "reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 9, 33])
def test_a_part_costs_what_the_simulated_machine_takes(name, p):
    for n in sizes(p):
        seconds, _, _ = measured(getattr(collectives, name), p, n)
        assert getattr(cost, name)(p, 4 * n, ALPHA, BETA, GAMMA) == pytest.approx(seconds, rel=1e-9, abs=1e-18), n


@pytest.mark.parametrize(("p", "servers"), [(2, 2), (5, 3), (7, 7), (8, 2), (9, 4)])
def test_servers_share_the_load(p, servers):
    for n in sizes(p):
        seconds, messages, nbytes = measured(collectives.parameter_server_all_reduce, p, n, servers=servers)
        expected = parameter_server(p, 4 * n, ALPHA, BETA, GAMMA, servers=servers)
        assert expected == pytest.approx(seconds, rel=1e-9), n
        assert TRAFFIC["parameter_server"](p, 4 * n, servers) == (messages, nbytes)


@pytest.mark.parametrize(("p", "per_node"), [(5, 1), (6, 3), (7, 3), (8, 8), (9, 2), (5, 64)])
def test_nodes_may_have_any_number_of_ranks(p, per_node):
    for n in sizes(p):
        seconds, messages, nbytes = measured(collectives.hierarchical_all_reduce, p, n, per_node=per_node)
        assert hierarchical(p, 4 * n, ALPHA, BETA, GAMMA, per_node=per_node) == pytest.approx(seconds, rel=1e-9), n
        assert TRAFFIC["hierarchical"](p, 4 * n, per_node) == (messages, nbytes)


def test_the_size_of_an_element_decides_how_uneven_chunks_are():
    seconds, _, _ = measured(collectives.ring_all_reduce, 3, 4, torch.float64)
    assert ALL_REDUCE["ring"](3, 32, ALPHA, BETA, GAMMA, itemsize=8) == pytest.approx(seconds, rel=1e-9)
    assert ALL_REDUCE["ring"](3, 32, ALPHA, BETA, GAMMA, itemsize=4) < seconds


def test_faster_links_within_a_node_make_a_hierarchy_pay():
    flat = hierarchical(64, 4096, ALPHA, BETA, per_node=8)
    assert hierarchical(64, 4096, ALPHA, BETA, per_node=8, within=(ALPHA / 10, BETA / 10)) < flat


@pytest.mark.parametrize("name", textbook.ALL_REDUCE)
@pytest.mark.parametrize("p", [2, 4, 8, 64])
def test_textbook_form_is_exact_for_powers_of_two(name, p):
    n = 4 * p * 1000
    exact = ALL_REDUCE[name](p, n, ALPHA, BETA, GAMMA)
    assert textbook.ALL_REDUCE[name](p, n, ALPHA, BETA, GAMMA) == pytest.approx(exact, rel=1e-12)


def test_the_lectures_table_agrees_with_ours_where_it_counts_the_same():
    p, n = 8, 4 * 8000
    for name in ("ring", "tree"):
        assert textbook.LECTURE[name](p, n, ALPHA, BETA) == pytest.approx(ALL_REDUCE[name](p, n, ALPHA, BETA))
    assert textbook.LECTURE["broadcast"](p, n, ALPHA, BETA) == pytest.approx(cost.broadcast(p, n, ALPHA, BETA))
    served = textbook.LECTURE["parameter_server"](p, n, ALPHA, BETA)
    assert served == pytest.approx(parameter_server(p, n, ALPHA, BETA) - 2 * (p - 2) * ALPHA)
    # The lecture's all-gather counts M bytes per worker, ours all of them together; and log N rounds, the ring N - 1.
    gathered = textbook.LECTURE["all_gather"](p, n // p, ALPHA, BETA)
    assert gathered == pytest.approx(cost.all_gather(p, n, ALPHA, BETA) - (p - 1 - math.log2(p)) * ALPHA)


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_wrong_arguments_are_named(name):
    with pytest.raises(ValueError, match=r"p is 0; the number of ranks is an integer from 1|servers is 1"):
        ALL_REDUCE[name](0, 4, ALPHA, BETA)
    with pytest.raises(ValueError, match=r"nbytes is 6; .* multiples of itemsize, which is 4"):
        ALL_REDUCE[name](2, 6, ALPHA, BETA)
    assert ALL_REDUCE[name](2, 6, ALPHA, BETA, itemsize=2) > 0


@pytest.mark.parametrize("name", textbook.LECTURE)
def test_each_row_of_the_lectures_table_grows_as_its_complexity_says(name):
    latency, bandwidth = textbook.COMPLEXITY[name]
    workers, nbytes = [2.0**k for k in range(10, 41, 10)], 1e6
    alphas = [textbook.LECTURE[name](n, nbytes, 1.0, 0.0) / latency.of(n, nbytes) for n in workers]
    betas = [textbook.LECTURE[name](n, nbytes, 0.0, 1.0) / bandwidth.of(n, nbytes) for n in workers]
    for ratios in (alphas, betas):  # neither shrink nor grow beyond a constant
        assert 0.5 < min(ratios) <= max(ratios) < 2.01
        assert ratios[-1] == pytest.approx(ratios[0], rel=0.01)


def test_an_unknown_algorithm_is_named_beside_those_there_are():
    with pytest.raises(
        ValueError, match=f"algorithm is 'rign'; the all-reduce algorithms are {', '.join(ALL_REDUCE)}$"
    ):
        cost.formula("rign")
