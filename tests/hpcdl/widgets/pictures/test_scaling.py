"""The pictures of lab `scaling`: leaks are the cost model's, and what becomes 0 is what the rounding says."""

import itertools

import pytest
import torch

from hpcdl.cost.published import data_parallel
from hpcdl.numerics.rounding import FLOATS, FP16
from hpcdl.widgets.pictures import loss_scale, speed_up

pytestmark = pytest.mark.labs

LEAKS = {
    "p": (1, 256, 2048),
    "network": tuple(speed_up.NETWORKS),
    "gigabits": (10, 400),
    "buckets": tuple(speed_up.BUCKETS),
    "precision": tuple(speed_up.PRECISIONS),
    "input": (10_000.0, speed_up.INFINITE),
    "spread": (0, 20),
    "critical": (2_000.0, speed_up.INFINITE),
}
SCALES = {"format": tuple(loss_scale.NAMES.values()), "power": (0, 15, 40)}


def test_every_corner_of_the_leaks_is_drawn_without_exception_or_warning(draws_its_corners):
    draws_its_corners(speed_up.explorable, LEAKS, most=24)


def test_every_control_of_the_leaks_changes_the_picture(answers_its_controls):
    answers_its_controls(speed_up.explorable, LEAKS, network="VGG-16", gigabits=10, p=256)


def test_every_scale_is_drawn_without_exception_or_warning(draws_its_corners):
    draws_its_corners(loss_scale.explorable, SCALES)


def test_every_control_of_the_scale_changes_the_picture(answers_its_controls):
    answers_its_controls(loss_scale.explorable, SCALES)


@pytest.fixture
def state():
    return speed_up.explorable().state


def caption(module, **changes):
    explorable = module.explorable()
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture.caption


def test_one_gpu_is_once_as_fast(state):
    assert speed_up.remaining(state, 1) == pytest.approx([1.0] * 5)


def test_each_leak_takes_and_none_gives(state):
    for network in speed_up.NETWORKS:
        for p in speed_up.RANKS:
            left = speed_up.remaining({**state, "network": network}, p)
            assert left[0] == p
            assert all(after <= before + 1e-9 for before, after in itertools.pairwise(left))


def test_an_input_that_is_too_slow_is_the_only_limit(state):
    left = speed_up.remaining({**state, "input": 10_000.0}, 2048)
    assert left[1] == pytest.approx(10_000 / speed_up.NETWORKS["ResNet-50"].rate)
    assert left[3] == pytest.approx(left[1])


def test_at_the_critical_batch_half_of_the_progress_is_lost(state):
    left = speed_up.remaining({**state, "critical": 128_000.0}, 2000)
    assert left[4] / left[3] == pytest.approx(0.5, rel=1e-3)


def test_its_efficiencies_are_those_of_the_published_page():
    rows = {row.what: row for row in data_parallel.horovod()}
    setting = {**speed_up.explorable().state, "gigabits": 25, "buckets": "all that is ready (Horovod)"}
    for network in ("Inception V3", "VGG-16"):
        row = rows[f"{network}, efficiency, 512 GPUs"]
        dot = next(dot for dot in speed_up.DOTS if dot.network == network)
        assert (dot.p, dot.efficiency) == (512, row.published)
        found = 100 * speed_up.remaining({**setting, "network": network}, 512)[3] / 512
        assert found == pytest.approx(row.predicted, abs=4)  # 8 GPUs to a server here, 4 there


def test_the_sentence_names_the_largest_leak():
    assert "Most goes to input" in caption(speed_up, input=10_000.0)
    assert "Most goes to the batch" in caption(speed_up)
    assert "Hardly a leak" in caption(speed_up, p=1)


@pytest.mark.parametrize("name", FLOATS)
def test_fates_lie_where_the_format_rounds_them(name):
    fmt = FLOATS[name]
    bounds = loss_scale.fates(fmt)
    zero, normal = bounds["becomes 0"][1], bounds["kept"][0]
    numbers = torch.tensor([0.99, 1.01]) * 2.0**zero
    assert [loss_scale.shares(x.view(1), fmt, 0)[0] for x in numbers] == [1.0, 0.0]
    assert normal == fmt.min_exponent
    assert loss_scale.shares(torch.tensor([1.01 * fmt.max]), fmt, 0)[1] == 1.0


def test_a_scale_saves_gradients_that_would_be_zero():
    gradients = loss_scale.of_the_digits()
    lost = [loss_scale.shares(gradients, FP16, power)[0] for power in (0, 8, 15)]
    assert lost[0] > 0.3 > lost[1] > lost[2]
    assert lost[2] < 0.05


def test_the_sentence_says_what_is_lost_and_what_overflows():
    assert "of the gradients become 0" in caption(loss_scale)
    assert "the step is left out" in caption(loss_scale, power=40)
    assert "largest number" in caption(loss_scale, power=40, format="FP8_E4M3")


def test_gradients_of_ones_own_can_be_shown():
    explorable = loss_scale.explorable(torch.tensor([2.0**-30, 1.0, 2.0**-20, 4.0]))
    assert explorable.picture.caption.startswith("25.0 %")
