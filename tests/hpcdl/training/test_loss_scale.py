"""Loss scales after a loaded state, and gradients that float32 cannot sum."""

import pytest
import torch

from hpcdl.training import LossScaler


@pytest.mark.parametrize("interval", [1, 3, 2.5])
@pytest.mark.parametrize("good", [0, 2, 50])
def test_scale_grows_from_any_count(interval, good):
    scaler = LossScaler(scale=4.0, interval=interval)
    scaler.load_state_dict({"scale": 4.0, "good_steps": good})
    for _ in range(3):
        scaler.update(True)
    assert scaler.value >= 8.0


def test_double_gradients_beyond_float32():
    for value, finite in ((1e300, True), (1e308, True), (float("inf"), False), (float("nan"), False)):
        w = torch.zeros(4, dtype=torch.float64, requires_grad=True)
        w.grad = torch.full_like(w, value)
        assert LossScaler(scale=2.0).unscale([w]) == finite
        assert not finite or w.grad.tolist() == [value / 2] * 4
