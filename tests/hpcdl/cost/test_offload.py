"""The timeline of offloaded states: what may run at once does, what may not does not, and the formula is its end."""

import random
from itertools import pairwise

import pytest

from hpcdl.cost import offload


def test_equal_shards_by_hand():
    # 2 s to move, 3 s to update: read 0, then three updates (the first and the last hide one move), then write 2.
    assert offload.seconds([3, 3, 3], [20, 20, 20], 10) == 2 + 3 + 4 + 3 + 2
    assert offload.seconds([3, 3, 3], [20, 20, 20], 10, ahead=False) == 3 * (2 + 3 + 2)


@pytest.mark.parametrize("seed", range(20))
def test_a_link_moves_one_thing_at_a_time_and_every_op_has_what_it_needs(seed):
    draw = random.Random(seed)
    n = draw.randint(1, 7)
    compute, nbytes = ([draw.choice((0, 1, 2.5, 7)) for _ in range(n)] for _ in range(2))
    ops = offload.timeline(compute, nbytes, 2.0)
    at = {(op.what, op.k): op for op in ops}
    assert len(at) == len(ops) == 3 * n
    for k in range(n):
        assert at["read", k].end <= at["update", k].start
        assert at["update", k].end <= at["write", k].start
        assert at["update", k].end - at["update", k].start == pytest.approx(compute[k])
        if k + 3 < n:
            assert at["write", k].end <= at["read", k + 3].start, "states of three at most"
    for one_at_a_time in (["read", "write"], ["update"]):
        mine = sorted((op for op in ops if op.what in one_at_a_time), key=lambda op: (op.start, op.end))
        assert all(a.end <= b.start for a, b in pairwise(mine))
    total, moves = offload.seconds(compute, nbytes, 2.0), [size / 2 for size in nbytes]
    around = zip([0, *moves[:-1]], compute, [*moves[1:], 0], strict=True)
    assert total == pytest.approx(moves[0] + sum(max(c, b + a) for b, c, a in around) + moves[-1])
    assert max(sum(compute), 2 * sum(moves)) <= total + 1e-12
    assert total <= offload.seconds(compute, nbytes, 2.0, ahead=False) + 1e-12


def test_what_makes_no_sense_is_named():
    assert offload.seconds([], [], 1) == 0
    for arguments, said in [
        (([1], [], 1), "1 updates and 0 sizes"),
        (([1], [1], 0), "bandwidth is 0"),
        (([-1], [1], 1), "0 or"),
    ]:
        with pytest.raises(ValueError, match=said):
            offload.timeline(*arguments)
