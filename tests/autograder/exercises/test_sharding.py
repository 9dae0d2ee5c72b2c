"""Lab `sharding`: its oracles agree with the library, torch and closed forms."""

import pytest
import torch

from autograder.exercises.sharding import checkpointed, offload, save_load
from autograder.sessions.ranks import Ranks
from hpcdl.sharding import plan

pytestmark = pytest.mark.labs


@pytest.mark.parametrize("seed", range(5))
def test_the_fewest_seconds_of_all_plans_are_the_librarys(seed):
    rng = torch.Generator().manual_seed(seed)
    nbytes = torch.randint(1, 60, (9,), generator=rng).tolist()
    seconds = torch.rand(9, generator=rng).tolist()
    best = sum(seconds[i] for i in plan(nbytes, seconds, 100))
    assert checkpointed.fewest_seconds(nbytes, seconds, 100) == pytest.approx(best)


@pytest.mark.parametrize("slug", ["sharding"])
@pytest.mark.parametrize("room", [1, 2, 3, 5])
def test_ticks_and_the_references_recurrence_agree(reference, slug, room):
    compute, transfer = offload.UNEVEN
    got = reference["offload"]([float(c) for c in compute], transfer, 1.0, room)
    assert got == offload.ticks(compute, transfer, room)


def test_a_disk_at_a_moment_has_what_was_done_until_then():
    state = {"weights": torch.ones(2)}
    slow = [("write", "new", state, 0.0, 4.0)]
    quick = [("write", "to-be", {"step": 2}, 0.0, 1.0), ("rename", "to-be", "manifest", 1.0, 1.0)]
    run = Ranks([slow, quick], 4.0, None, [], [])
    before = {"manifest": {"step": 1}}
    assert save_load.after(run, before, 0.5) == {**before, "to-be": None, "new": None}
    assert save_load.after(run, before, 2.0) == {"manifest": {"step": 2}, "new": None}
    assert save_load.after(run, before) == {"manifest": {"step": 2}, "new": state}
    assert save_load.moments(run) == [0.5, 1.0, 2.0, 4.0]
