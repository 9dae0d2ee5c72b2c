"""The slider under a picture of the site, in Chromium: each place shows that frame, with its sentence."""

import functools
import http.server
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

from hpcdl.widgets.film import Film

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))

import frames  # noqa: E402
import site_pages  # noqa: E402

pytestmark = [pytest.mark.browser]
SHADES = (0, 60, 120, 180, 240)
MIDDLE = """async (figure) => {
  const image = [...figure.querySelectorAll('img')].find((each) => each.offsetParent);
  try { await image.decode(); } catch { return NaN; }  // the slider has just changed it: ask again
  const canvas = Object.assign(document.createElement('canvas'), {width: 64, height: 48});
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas.getContext('2d').getImageData(32, 24, 1, 1).data[0];
}"""


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def page(tmp_path):
    """The address of a page with one picture, with the site's own HTML, script and style."""
    images = [Image.new("RGB", (64, 48), (shade, 0, 0)) for shade in SHADES]
    film = Film("What it shows.", "shade", images, [f"It is {shade}." for shade in SHADES])
    (tmp_path / "_pictures").mkdir()
    for theme in frames.THEMES:
        (tmp_path / "_pictures" / f"red-{theme}.webp").write_bytes(film.poster())
        (tmp_path / "_pictures" / f"red-{theme}-play.webp").write_bytes(film.animation())
    shown = frames.Frames("red", film.title, film.texts[film.still], film.moves, 64, 48, film.told(film.animation()))
    parts = (
        '<!DOCTYPE html><html lang="en"><head><title>x</title><link rel="stylesheet" href="site.css">',
        '<script src="play.js"></script></head><body data-theme="auto">',
        site_pages.figure(shown, "", lazy=False),
    )
    (tmp_path / "index.html").write_text("".join(parts), encoding="utf-8")
    for name in ("play.js", "site.css"):
        (tmp_path / name).write_text((DOCS / "_static" / name).read_text(encoding="utf-8"), encoding="utf-8")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/index.html", tmp_path / "index.html"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_place_of_the_slider_shows_its_frame_and_says_it(page, browser, theme):
    context = browser.new_context(color_scheme=theme, viewport={"width": 390, "height": 700})
    shown = context.new_page()
    shown.goto(page[0])
    figure, slider = shown.locator("figure.play"), shown.get_by_role("slider", name="shade")
    slider.focus()
    shown.keyboard.press("Home")
    for shade in SHADES:
        shown.wait_for_function(
            f"async () => Math.abs(await ({MIDDLE})(document.querySelector('figure.play')) - {shade}) < 4"
        )
        assert slider.get_attribute("aria-valuetext") == f"It is {shade}."
        assert figure.locator("output").text_content() == f"It is {shade}."
        shown.keyboard.press("ArrowRight")
    figure.get_by_role("button").click()
    assert "-play" in figure.locator(f"img.only-{theme}").get_attribute("src")
    shown.keyboard.press("Tab")
    slider.focus()
    shown.keyboard.press("Home")
    assert figure.get_by_role("button").get_attribute("aria-pressed") == "false"
    context.close()


def test_without_a_decoder_there_is_no_slider(page, browser):
    """A browser that lacks it, or a page opened from a file, has the Play button."""
    for address, lacking in ((page[0], "delete window.ImageDecoder"), (page[1].as_uri(), "")):
        shown = browser.new_page()
        shown.add_init_script(lacking)
        shown.goto(address)
        assert shown.locator("figure.play button").is_visible()
        assert shown.locator("input[type=range]").count() == 1
        assert not shown.locator("input[type=range]").is_visible()
        shown.close()
