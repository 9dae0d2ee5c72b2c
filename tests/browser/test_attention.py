"""`attention` in a page: weights and memory move, and a mask of zeros is explained."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(300)]


def test_lab_runs_its_picture_moves_and_a_mask_of_zeros_is_explained(open_lab):
    lab = open_lab("attention")
    lab.run_all(seconds=200)

    cell = lab.cell("display(attention_weights.explorable())")
    picture = cell.locator("img.widget-image").first
    picture.wait_for(timeout=20_000)
    for slider in cell.get_by_role("slider").all():
        before = picture.get_attribute("src")
        slider.focus()
        slider.press("ArrowRight")
        lab.wait_until_changed(lambda: picture.get_attribute("src"), before)
    before = picture.get_attribute("src")
    cell.locator("select").first.select_option(index=1)
    lab.wait_until_changed(lambda: picture.get_attribute("src"), before)
    lab.screenshot("attention_picture")

    verdict = lab.cell('check("attention.ring_attention")').locator(".jp-OutputArea-output").first
    assert "20 / 20" in verdict.text_content()
    mistake = (
        "def attention(q, k, v, causal=True):\n"
        "    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])\n"
        "    if causal:\n"
        "        scores = scores.tril()\n"
        "    return scores.softmax(-1) @ v\n"
    )
    wrong = lab.run_new_cell(f'{mistake}\ncheck("attention.attention")').locator(".jp-OutputArea-output").first
    wrong.wait_for()
    assert "A hidden score is -inf" in wrong.text_content()
    wrong.scroll_into_view_if_needed()
    lab.screenshot("attention_mask_of_zeros")
    lab.assert_solved()
