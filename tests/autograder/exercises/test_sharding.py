"""Lab `sharding`: its oracles agree with the library, torch and closed forms."""

from types import SimpleNamespace

import pytest
import torch

from autograder import checks
from autograder.checks.ladder import OR
from autograder.exercises.sharding import checkpointed, memory, offload, save_load
from autograder.exercises.sharding.memory import cost
from autograder.sessions.ranks import Ranks
from hpcdl.sharding import plan

pytestmark = pytest.mark.labs


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("other", range(4))
def test_one_sentence_names_another_stage(stage, other):
    """Two are said where both are true: stage 3 is the next one and the last, and p shares of it are stage 0."""
    answer = SimpleNamespace(memory=lambda parameters, p, _: cost.zero(parameters, p, other))
    if stage == other:
        memory.memory_is(answer, 1000, 7, stage)
        return
    with pytest.raises(checks.CheckFailure) as caught:
        memory.memory_is(answer, 1000, 7, stage)
    assert (OR in caught.value.mistake) == ((stage, other) in ((2, 3), (3, 0)))
    assert "too few" not in caught.value.mistake or other == stage - 1 > 0


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
