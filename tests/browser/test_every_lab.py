"""Every lab on a small dark screen, as on a projector at night: nothing is cut off, every control has a name."""

import pytest

from autograder.authors import build

pytestmark = [pytest.mark.browser, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]
LABS = [path.stem for path in build.sources()]
ROOM = """image => image.closest(".jp-OutputArea-output").getBoundingClientRect().right
    - image.getBoundingClientRect().right"""
CONTROLS = {"slider", "combobox", "checkbox", "radio", "button", "spinbutton"}


@pytest.mark.parametrize("name", LABS)
def test_a_lab_on_a_small_dark_screen(name, open_lab, dark):
    lab = open_lab(f"{name}.ipynb", width=900, height=700)
    assert lab.page.evaluate("document.body.dataset.jpThemeLight") == "false"
    lab.run_all(seconds=240)
    lab.page.wait_for_timeout(500)
    assert not unnamed_controls(lab.page)
    pictures = lab.page.locator(".jp-OutputArea-output img.widget-image, .hpcdl-clicks img").all()
    for number, picture in enumerate(pictures):
        picture.scroll_into_view_if_needed()
        said = picture.get_attribute("alt") or picture.get_attribute("title")
        assert said, f"picture {number} says nothing to those who do not see it"
        assert picture.evaluate(ROOM) >= 0, f"picture {number} is cut off at the right"
        lab.screenshot(f"{name}_dark_{number}")
    lab.assert_solved()


def unnamed_controls(page) -> list[str]:
    """The controls in the notebook's outputs without an accessible name, as Chromium computes it."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    found = []
    for node in nodes:
        role, name = node.get("role", {}).get("value"), node.get("name", {}).get("value")
        if role not in CONTROLS or name or "backendDOMNodeId" not in node:
            continue
        handle = session.send("DOM.resolveNode", {"backendNodeId": node["backendDOMNodeId"]})["object"]["objectId"]
        inside = session.send(
            "Runtime.callFunctionOn",
            {
                "objectId": handle,
                "returnByValue": True,
                "functionDeclaration": "function() { return this.closest('.jp-OutputArea-output') && this.outerHTML; }",
            },
        )["result"].get("value")
        if inside:
            found.append(f"{role}: {inside[:200]}")
    return found
