"""The site in Chromium: pictures load and play, links lead somewhere, nothing scrolls sideways."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autograder import exercises

from . import building

pytestmark = [pytest.mark.browser, pytest.mark.long]  # the site is built: two minutes

LAB = "labs/ddp.html" if "ddp" in exercises.LABS else f"labs/{exercises.LABS[-1]}.html"
PAGES = ("index.html", LAB, "gallery.html")
WIDTHS = (390, 900, 1600)
MOST_KB = 400  # of an animation
WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
BROKEN = """() => Promise.all([...document.querySelectorAll('img')]
    .filter(image => getComputedStyle(image).display !== 'none')
    .map(async image => {
        image.loading = 'eager';
        try { await image.decode(); return null } catch { return image.src }
    })
).then(found => found.filter(Boolean))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return building.site(tmp_path_factory)


class Links(HTMLParser):
    """Where a page leads, what it loads, and its anchors."""

    def __init__(self, path: Path):
        super().__init__()
        self.targets, self.anchors = set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.anchors |= {value for name, value in attrs if name == "id"}
        self.targets |= {value for name, value in attrs if name in ("href", "src", "data-play") and value}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(site, page):
    here = site / page
    for target in Links(here).targets:
        if re.match(r"[a-z]+:|//|#$", target):
            continue
        path, _, anchor = target.partition("#")
        found = (here.parent / path.partition("?")[0]).resolve() if path else here
        assert found.exists(), f"{page} leads to {target}"
        if anchor and found.suffix == ".html":
            assert anchor in Links(found).anchors, f"{page} leads to {target}"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_page_is_whole_at_every_width(site, browser, page, theme):
    context = browser.new_context(color_scheme=theme)
    shown = context.new_page()
    for width in WIDTHS:
        shown.set_viewport_size({"width": width, "height": 900})
        shown.goto((site / page).as_uri())
        assert not shown.evaluate(WIDE), f"{page} scrolls sideways at {width}"
        assert shown.evaluate(BROKEN) == []
    assert shown.locator("img:not([alt]), img[alt='']").count() == 0
    assert shown.locator(f"img.only-{theme}").first.is_visible()
    assert not shown.locator(f"img.only-{'light' if theme == 'dark' else 'dark'}").first.is_visible()
    context.close()


def test_no_page_scrolls_sideways(site, browser):
    """On a telephone; API pages are of one kind, so a few stand for all."""
    shown = browser.new_page(viewport={"width": 390, "height": 800})
    pages = [path for path in sorted(site.rglob("*.html")) if "api" not in path.parts or path.stem in ("ddp", "index")]
    wide = []
    for path in pages:
        shown.goto(path.as_uri(), wait_until="domcontentloaded")
        wide += [path.name] if shown.evaluate(WIDE) else []
    shown.close()
    assert not wide


def test_picture_plays_and_stops(site, browser):
    shown = browser.new_page(reduced_motion="reduce")
    shown.goto((site / LAB).as_uri())
    figure = shown.locator("figure.play").first
    image, button = figure.locator("img.only-light"), figure.get_by_role("button")
    assert "-play" not in image.get_attribute("src")
    button.click()
    assert "-play" in image.get_attribute("src")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert "-play" not in image.get_attribute("src")
    shown.close()


@pytest.mark.parametrize("reduced", ["reduce", "no-preference"])
def test_first_picture_respects_motion(site, browser, reduced):
    shown = browser.new_page(reduced_motion=reduced)
    shown.goto((site / "index.html").as_uri())
    source = shown.locator("figure[data-autoplay] img.only-light").get_attribute("src")
    assert ("-play" in source) == (reduced == "no-preference")
    shown.close()


def test_every_lab_has_its_page(site):
    landing = (site / "index.html").read_text(encoding="utf-8")
    for slug in exercises.LABS:
        page = (site / "labs" / f"{slug}.html").read_text(encoding="utf-8")
        lab = exercises.load(slug)
        assert f'href="labs/{slug}.html"' in landing
        assert all(f">{name}</span>" in page for name in lab.exercises), slug
        data = json.loads(re.search(r'<script type="application/ld\+json">(.*?)</script>', page, re.DOTALL)[1])
        assert data["@type"] == "LearningResource"
        assert data["position"] == lab.number
        assert data["teaches"]


def test_animations_are_small(site):
    sizes = {path.name: path.stat().st_size // 1000 for path in (site / "_pictures").glob("*-play.webp")}
    assert sizes
    assert {name: size for name, size in sizes.items() if size > MOST_KB} == {}


def test_site_holds_no_solution(site):
    assert not list(site.rglob("*.ipynb.py")) + list((site / "notebooks").glob("*.py"))
    for path in (site / "notebooks").glob("*.ipynb"):
        assert "BEGIN SOLUTION" not in path.read_text(encoding="utf-8")
    assert "ring_all_reduce" in (site / "api" / "collectives.html").read_text(encoding="utf-8")
