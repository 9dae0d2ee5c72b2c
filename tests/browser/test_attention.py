"""`attention` in a page: weights and memory move, and a mask of zeros is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(300)]


def test_lab_runs_its_picture_moves_and_a_mask_of_zeros_is_explained(open_lab):
    lab = open_lab("attention")
    lab.run_all(seconds=200)

    picture = lab.explorable("display(attention_weights.explorable())")
    for slider in range(len(picture.sliders)):
        picture.press(slider, "ArrowRight")
    picture.choose(1)
    lab.screenshot("attention_picture")

    lab.assert_checked("attention.ring_attention", "20 / 20")
    mistake = (
        "def attention(q, k, v, causal=True):\n"
        "    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])\n"
        "    if causal:\n"
        "        scores = scores.tril()\n"
        "    return scores.softmax(-1) @ v\n"
    )
    lab.assert_explained(
        f'{mistake}\ncheck("attention.attention")', "A hidden score is -inf", "attention_mask_of_zeros"
    )
    lab.assert_solved()
