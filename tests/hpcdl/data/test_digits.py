"""The digits: all of them, each once, in the same order for everyone."""

import pytest
import torch

from hpcdl.data import digits


def test_every_image_is_on_exactly_one_side_and_the_shapes_and_range_hold():
    split = digits()
    assert split.x.shape[1:] == (1, 8, 8)
    assert split.x.dtype == torch.float32
    assert split.y.dtype == torch.int64
    assert len(split.y) + len(split.y_held_out) == 1797
    assert split.x.min() == 0
    assert split.x.max() == 1
    from sklearn.datasets import load_digits

    images = torch.cat([split.x, split.x_held_out]).flatten(1) * 16
    wanted = torch.from_numpy(load_digits().data).to(torch.float32)
    assert torch.equal(images.sum(0), wanted.sum(0))
    assert sorted(map(tuple, images.tolist())) == sorted(map(tuple, wanted.tolist()))


def test_the_same_seed_gives_the_same_split_and_another_seed_another():
    assert torch.equal(digits(seed=3).x, digits(seed=3).x)
    assert not torch.equal(digits(seed=3).y, digits(seed=4).y)


def test_no_global_random_state_is_touched():
    before = torch.random.get_rng_state()
    digits(seed=5)
    assert torch.equal(before, torch.random.get_rng_state())


def test_resampled_images_keep_their_mean_brightness():
    small, large = digits(size=8), digits(size=28)
    assert large.x.shape[1:] == (1, 28, 28)
    torch.testing.assert_close(large.x.mean(), small.x.mean(), rtol=0.02, atol=0)


@pytest.mark.parametrize(("arguments", "rule"), [({"size": 0}, "size is 0"), ({"held_out": 1.0}, "held_out is 1.0")])
def test_a_wrong_argument_is_named(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        digits(**arguments)
