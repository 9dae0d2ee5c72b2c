"""The picture of lab `attention`: its weights are a softmax, and its bytes those of tensors."""

import numpy as np
import pytest
import torch

from hpcdl.widgets.pictures import attention_weights as picture

pytestmark = pytest.mark.labs

VALUES = {"mask": (True, False), "temperature": (0.1, 1.0, 10.0), "n": (128, 2**22), "p": (1, 256)}


def test_every_corner_is_drawn_without_warning(draws_its_corners):
    draws_its_corners(picture.explorable, VALUES, most=24)


def test_every_control_changes_the_picture(answers_its_controls):
    answers_its_controls(picture.explorable, VALUES)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_weights_are_torchs_softmax(causal, temperature):
    scores = torch.from_numpy(picture.scores()) / temperature
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    assert np.allclose(picture.weights(causal, temperature), scores.softmax(1).numpy())


def test_cold_rows_look_at_one_token_and_hot_rows_at_all():
    assert picture.looked_at(np.eye(picture.TOKENS)) == pytest.approx(1)
    assert picture.looked_at(picture.weights(False, 0.01)) == pytest.approx(1, abs=0.1)
    assert picture.looked_at(picture.weights(False, 1e4)) == pytest.approx(picture.TOKENS, abs=1e-3)


@pytest.mark.parametrize(("n", "p"), [(512, 1), (1024, 4)])
def test_bytes_are_those_of_tensors(n, p):
    rows, head = n // p, picture.HIDDEN // picture.HEADS
    empty = lambda *shape: torch.empty(*shape, dtype=torch.bfloat16, device="meta").nbytes  # noqa: E731
    held = picture.held(n, p)
    assert held["all scores"] == empty(picture.HEADS, rows, n)
    assert held["a block of scores"] == empty(picture.HEADS, rows, picture.BLOCK)
    assert held["q, k, v, output"] == (4 if p == 1 else 6) * empty(picture.HEADS, rows, head)


def test_the_sentence_tells_what_fits():
    shown = picture.explorable()
    shown.picture.render({**shown.state, "n": 2**20})
    assert "all scores take 70.4 TB on one rank" in shown.picture.caption
    assert "fits into 80 GB" in shown.picture.caption
