"""All-reduce over nodes, tori, meshes and parameter servers."""

import pytest

from hpcdl.cost import textbook
from hpcdl.cost.collectives import ALL_REDUCE, rabenseifner, ring
from hpcdl.cost.topology import COPYING, Link, Nodes, ParameterServers, Torus, tcp

FAST, SLOW = Link(1e-6, 1e-11), Link(1e-5, 1e-9)


def test_within_one_node_only_its_links_count():
    assert Nodes(8, FAST, SLOW).all_reduce(4)(4000) == pytest.approx(ring(4, 4000, *FAST))
    assert Nodes(8, FAST, SLOW).all_reduce(1)(4000) == 0


def test_between_nodes_the_phases_add_up_or_hide_behind_each_other():
    inside, between = ring(8, 1 << 20, *FAST), rabenseifner(4, 1 << 20, *SLOW)
    cluster = Nodes(8, FAST, SLOW, "rabenseifner")
    assert cluster.all_reduce(32)(1 << 20) == pytest.approx(inside + between)
    assert cluster._replace(pipelined=True).all_reduce(32)(1 << 20) == pytest.approx(max(inside, between))


def test_groups_of_one_node_share_its_link():
    cluster = Nodes(8, FAST, SLOW)
    expected = ring(2, 1 << 20, *FAST) + ring(16, 1 << 20, SLOW.alpha, 4 * SLOW.beta)
    assert cluster.all_reduce(32, groups=4)(1 << 20) == pytest.approx(expected)
    with pytest.raises(ValueError, match="groups is 9; a node has 8 ranks"):
        cluster.all_reduce(32, groups=9)


def test_a_cluster_with_an_unknown_algorithm_says_which_there_are():
    with pytest.raises(
        ValueError, match=f"algorithm is 'rign'; the all-reduce algorithms are {', '.join(ALL_REDUCE)}$"
    ):
        Nodes(8, FAST, SLOW, "rign").all_reduce(32)


def test_half_the_rate_doubles_the_time_of_bytes():
    for network in (Nodes(8, FAST, SLOW), Torus(8, SLOW), ParameterServers(2, SLOW, staging=0.0)):
        full, half = network.all_reduce(32), network.reaching(0.5).all_reduce(32)
        assert half(1 << 40) == pytest.approx(2 * full(1 << 40), rel=1e-4)
        assert half(0) == pytest.approx(full(0))
        assert network.reaching(0.5).message(0) == network.message(0) > 0


def test_rows_of_a_torus_and_of_a_mesh():
    alpha, beta = SLOW
    assert Torus(8, SLOW).all_reduce(8)(1 << 20) == pytest.approx(ring(8, 1 << 20, alpha, beta / 2))
    assert Torus(8, SLOW, closed=False).all_reduce(8)(1 << 20) == pytest.approx(ring(8, 1 << 20, 2 * alpha, beta))


def test_a_torus_moves_no_more_bytes_than_a_ring_of_all_in_fewer_steps():
    latency, bandwidth = Torus(16, Link(1.0, 0.0)), Torus(16, Link(0.0, 1.0))
    assert latency.all_reduce(256)(1 << 20) == 2 * 15 + 2 * 15
    assert latency.all_reduce(256)(1 << 20) < ring(256, 1 << 20, 1.0, 0.0)
    assert bandwidth.all_reduce(256)(1 << 20) == pytest.approx(ring(256, 1 << 20, 0.0, 0.5))
    with pytest.raises(ValueError, match="p is 24; rows of 16 ranks are full"):
        latency.all_reduce(24)


def test_one_server_is_the_lectures_formula():
    n = 1 << 20
    served = textbook.LECTURE["parameter_server"](9, n, *SLOW)
    assert ParameterServers(1, SLOW, staging=0.0).all_reduce(8)(n) == pytest.approx(served)


def test_more_servers_help_until_each_worker_has_one():
    times = [ParameterServers(servers, SLOW).all_reduce(16)(1 << 20) for servers in (1, 4, 16, 64)]
    assert times[0] > times[1] > times[2] == times[3]
    assert ParameterServers(4, SLOW).all_reduce(1)(1 << 20) == 0


def test_a_workers_own_work_comes_on_top():
    """Staging is paid once for each byte, however fast the link."""
    with_work, without = (ParameterServers(4, SLOW, staging).all_reduce(8)(1 << 20) for staging in (2e-9, 0.0))
    assert with_work - without == pytest.approx(2e-9 * (1 << 20))
    free = ParameterServers(4, Link(0.0, 0.0)).all_reduce(8)(916_000_000)
    assert free == pytest.approx(16 / 20)  # what Caffe takes for so many bytes on one node


def test_the_fullest_server_sets_the_pace():
    alpha, beta = SLOW
    even = ParameterServers(4, SLOW, 0.0).all_reduce(16)(1 << 20)
    full = ParameterServers(4, SLOW, 0.0, largest=0.5).all_reduce(16)(1 << 20)
    assert even == pytest.approx(2 * alpha + 2 * 4 * (1 << 20) * beta)
    assert full == pytest.approx(2 * alpha + 2 * 8 * (1 << 20) * beta)


def test_servers_get_one_gradient_from_each_node():
    """Workers of a node sum first, so that servers see nodes."""
    nested = ParameterServers(2, SLOW, 0.0, per_node=4, within=FAST).all_reduce(16)(1 << 20)
    flat = ParameterServers(2, SLOW, 0.0).all_reduce(4)(1 << 20)
    assert nested == pytest.approx(flat + ring(4, 1 << 20, *FAST))


def test_one_ranks_message_goes_through_one_card():
    node = Nodes(8, FAST, SLOW, cards=4)
    alpha, beta = SLOW
    assert [node.message(1 << 20, senders) for senders in (1, 2, 4, 8)] == pytest.approx(
        [alpha + share * (1 << 20) * beta for share in (4, 2, 1, 1)]
    )
    assert node.all_reduce(64)(1 << 20) == node._replace(cards=1).all_reduce(64)(1 << 20), "all ranks send at once"


def test_more_connections_near_the_rate_of_the_wire():
    """NVIDIA/nccl, issue 209: GB/s of 1, 2, 4 and 8 rings over 32 Gb/s."""
    published = {1: 2.06, 2: 2.77, 4: 3.28, 8: 3.75}
    assert {n: 1e-9 / tcp(4e9, 0.0, n).beta for n in published} == pytest.approx(published, rel=0.05)
    assert 1 / tcp(4e9, 0.0, 1 << 20).beta == pytest.approx(4e9)
    assert tcp(4e9, 3e-5).alpha == 3e-5


def test_gloo_over_tcp_takes_what_was_measured():
    """pytorch/gloo, issue 248: 20 MB of two processes in 17.251 ms over 40 Gb/s."""
    network = Nodes(1, Link(0.0, 0.0), tcp(5e9, 0.0, library="gloo"))
    assert network.all_reduce(2)(20_000_000) == pytest.approx(17.251e-3)
    with pytest.raises(ValueError, match="library is 'mpi', connections 1; it is one of nccl, gloo, with one or"):
        tcp(5e9, 0.0, library="mpi")
    with pytest.raises(ValueError, match="library is 'nccl', connections 0; it is one of nccl, gloo, with one"):
        tcp(5e9, 0.0, 0)
    assert set(COPYING) == {"nccl", "gloo"}
