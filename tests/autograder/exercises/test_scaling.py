"""Lab `scaling`: its oracles agree with the library, torch and closed forms."""

import pytest
import torch

from autograder import exercises
from autograder.exercises.scaling import fusion, large_batch, loading
from hpcdl.cost import scaling

pytestmark = pytest.mark.labs


@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_all_cuts_is_what_dynamic_programming_finds(seed):
    gradients = fusion.backward_pass(torch.Generator().manual_seed(seed), 9)
    for alpha, beta in ((2.0, 0.0625), (0.5, 0.125), (4.0, 0.03125)):
        ready = [scaling.Gradient(*gradient) for gradient in gradients]

        def seconds(nbytes, alpha=alpha, beta=beta):
            return alpha + beta * nbytes

        end = scaling.finished(scaling.merged(ready, seconds), seconds)
        assert fusion.soonest(gradients, alpha, beta) == pytest.approx(end)


def test_all_ways_to_cut_a_list_are_tried():
    ways = list(fusion.cuts([(1.0, 1), (2.0, 2), (3.0, 4), (4.0, 8)]))
    assert len(ways) == len({tuple(way) for way in ways}) == 8
    assert all(sum(nbytes for _, nbytes in way) == 15 for way in ways)


def test_lars_of_one_tensor_by_hand():
    w, g, v = [torch.tensor([[3.0, 4.0]])], [torch.tensor([[0.0, 2.0]])], [torch.tensor([[1.0, 1.0]])]
    (moved,), (kept,) = large_batch.lars(w, g, v, 2.0, momentum=0.5, decay=0.0, trust=0.1)
    assert torch.allclose(kept, torch.tensor([[0.5, 0.5 + 2.0 * (0.1 * 5 / 2) * 2]]))
    assert torch.allclose(moved, w[0] - kept)


def test_lamb_begins_as_adam_does_where_nothing_is_a_matrix():
    generator = torch.Generator().manual_seed(0)
    w = [torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(2)]
    g = [torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(2)]
    zeros = [torch.zeros_like(x) for x in w]
    params = [x.clone().requires_grad_() for x in w]
    for param, grad in zip(params, g, strict=True):
        param.grad = grad
    torch.optim.Adam(params, lr=0.1, eps=large_batch.EPS).step()
    got, *_ = large_batch.lamb(w, g, zeros, zeros, 1, 0.1)
    assert all(torch.allclose(a, b.detach()) for a, b in zip(got, params, strict=True))


@pytest.mark.parametrize("slug", ["scaling"])
@pytest.mark.parametrize(("workers", "room"), [(1, 1), (1, 4), (2, 2), (2, 3), (3, 5)])
def test_ticks_and_the_references_recurrence_agree(reference, slug, workers, room):
    load = [float(ticks) for ticks in loading.TELLING]
    for compute in (1, 2, 5):
        got = reference["waiting"](load, float(compute), workers, room)
        assert got == loading.ticks(loading.TELLING, compute, workers, room)


def test_known_mistakes_wait_otherwise_than_what_is_right():
    right = loading.ticks(loading.TELLING, 2, 2, 3)
    others = [
        loading.ticks(loading.TELLING, 2, workers, room) for workers, room in ((2, 2), (2, 4), (1, 3), (10, 3), (2, 10))
    ]
    others += [f(loading.TELLING, 2, 2, 3) for f in (loading.in_turn, loading.given_back_late)]
    assert right not in others
    assert len(set(others)) == len(others)


def test_batches_of_an_epoch_are_the_epochs_order():
    for n, batch in ((10, 4), (12, 3), (5, 7)):
        steps = -(-n // batch)
        pieces = [loading.batch_of(step, n, batch, 3) for step in range(2 * steps)]
        for epoch, part in enumerate((pieces[:steps], pieces[steps:])):
            assert torch.equal(torch.cat(part), loading.shuffled(n, 3, epoch))


def test_lab_has_15_checks_or_more():
    assert sum(len(exercise.checks) for exercise in exercises.load("scaling").exercises.values()) >= 15
