"""Lab 03 as a student meets it: points are clicked onto the plane, with the mouse and with the keyboard."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.labs, pytest.mark.timeout(240)]


def test_lab_03_takes_clicks_and_keys_and_its_pictures_move(open_lab):
    lab = open_lab("03_perceptron.ipynb")
    lab.run_all(seconds=150)
    page = lab.page

    cell = lab.cell("perceptron_plane.explorable()")
    plane = cell.locator(".hpcdl-clicks img")
    plane.wait_for(timeout=20_000)
    lab.screenshot("03_plane")
    milliseconds = lab.explorable("perceptron_plane.explorable()").milliseconds(keys=("ArrowRight", "ArrowLeft"))
    print(f"plane: slider to picture {milliseconds:.0f} ms, median of 4")

    def caption():
        return plane.get_attribute("alt")

    def after(action) -> str:
        """The caption once `action` has changed the picture."""
        before = plane.get_attribute("src")
        action()
        lab.wait_until_changed(lambda: plane.get_attribute("src"), before)
        return caption()

    cell.get_by_role("slider").first.focus()
    assert "Update 1 of 20" in after(lambda: page.keyboard.press("ArrowRight"))

    assert "Click into the plane" in after(lambda: cell.get_by_role("button", name="clear").click())
    box = plane.bounding_box()

    def at(x, y, **how):
        return after(lambda: plane.click(position={"x": x * box["width"], "y": y * box["height"]}, **how))

    assert "only one class" in at(0.30, 0.20)
    assert "It has settled" in at(0.30, 0.60, modifiers=["Shift"])
    at(0.15, 0.60)
    assert "does not settle" in at(0.15, 0.20, modifiers=["Shift"]), "two and two across a square are XOR"
    lab.screenshot("03_plane_xor_by_clicks")
    assert "It has settled" in at(0.15, 0.20, modifiers=["Shift"]), "a click on a point removes it"

    area = cell.locator(".hpcdl-clicks")
    area.focus()
    for _ in range(4):
        page.keyboard.press("ArrowUp")
    lab.screenshot("03_plane_keyboard")
    added = after(lambda: page.keyboard.press("Shift+Enter"))
    assert added
    assert lab.page.evaluate("document.activeElement.classList.contains('hpcdl-clicks')"), "the notebook took the keys"

    moved(lab, "lift")
    moved(lab, "mlp")

    lab.assert_checked("perceptron.mlp_xor", "20 / 20")
    lab.screenshot("03_check")
    lab.assert_solved()


def moved(lab, name: str) -> None:
    """The first and the last slider move the picture; then four moves, timed."""
    explorable = lab.explorable(f"perceptron_{name}.explorable()")
    for slider in (0, -1):  # passing more epochs than it takes changes nothing
        explorable.press(slider)
    lab.page.wait_for_timeout(200)
    lab.screenshot(f"03_{name}")
    print(f"{name}: slider to picture {explorable.milliseconds(keys=('ArrowRight', 'ArrowLeft')):.0f} ms, median of 4")
