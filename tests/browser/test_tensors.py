"""Lab 00 as a student meets it: run all, operate each picture, read a verdict."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(240)]

PICTURES = (
    'strides.explorable("x[:, ::2]")',
    'strides.explorable("x.T")',
    "broadcasting.explorable()",
    "masks.explorable()",
    "row_sums.explorable()",
    'strides.explorable("x.flatten().unfold(0, 4, 2)")',
    "aliases.explorable()",
    "bits.explorable()",
    "grad_steps.explorable()",
    "handing_out.explorable()",
)


def test_lab_00_runs_and_each_of_its_pictures_answers(open_lab):
    lab = open_lab("00_tensors.ipynb")
    lab.run_all(seconds=120)
    lab.page.wait_for_timeout(500)
    for number, call in enumerate(PICTURES, start=1):
        operate(lab, call, number)
    lab.assert_checked("tensors.grads", "10 / 10")
    lab.assert_solved()


def operate(lab, call: str, number: int) -> None:
    """Every slider by its keys, every list and box by hand: each changes the picture; then moves of a slider, timed."""
    explorable = lab.explorable(call)
    lab.screenshot(f"00_{number:02d}")
    for slider in range(len(explorable.sliders)):
        explorable.press(slider)
    for options in explorable.cell.locator("select").all():
        other = (options.evaluate("list => list.selectedIndex") or options.locator("option").count()) - 1
        explorable.after(lambda options=options, other=other: options.select_option(index=other))
    for box in explorable.cell.locator("input[type=checkbox]").all():
        explorable.after(box.check)
    lab.screenshot(f"00_{number:02d}_moved")
    if explorable.sliders:
        milliseconds = explorable.milliseconds(keys=("ArrowRight", "ArrowLeft"))
        print(f"{call}: slider to picture {milliseconds:.0f} ms, median of 4 moves")
