"""A lab's slides hold its headings, formulas and pictures, and load nothing from elsewhere."""

import json
import re

import pytest

from hpcdl import labs
from hpcdl.slides import formulas
from hpcdl.slides.deck import slides
from hpcdl.slides.page import inline, page

NOTEBOOKS = labs.notebooks(labs.shipped())


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_lab_has_slides(path):
    found = slides(cells(path))
    assert found[0].is_first
    assert len(found[1].items) >= 3, "the goals"
    assert len(found) > 5
    assert any(slide.picture for slide in found) == ("explorable" in path.read_text(encoding="utf-8"))
    text = " ".join(" ".join([slide.title, *slide.sentences, *slide.items]) for slide in found)
    assert "NotImplementedError" not in text
    assert "BEGIN SOLUTION" not in text
    last = [slide for slide in found if slide.sentences and slide.sentences[-1].endswith(":")]
    assert all(slide.items or slide.formulas or slide.block for slide in last), "a colon, and nothing after it"


def test_a_slide_has_what_its_last_sentence_announces():
    table = "## B\n\nOf $p$ ranks:\n\n| | |\n|---|---|\n| $p$ | `a` |\n\n"
    texts = ["# A\n", f"{table}## C\n\nTwo.\n\n*One.* It is so. And so.\nLeft out.\n\n## D\n\nThis:\n"]
    _, *found = slides([{"cell_type": "markdown", "source": text} for text in texts])
    assert [slide.items for slide in found] == [[], ["*One.* It is so. And so."], []]
    assert found[2].sentences == ["This."]
    html = page(found)
    assert "<th>" not in html
    assert "<code>a</code></td>" in html
    assert "$p$" not in html


def test_a_list_has_the_words_before_it():
    texts = [
        "# A\n",
        "## B\n\nMany are one. So a replica\n\n- fetches.\n\n$$x = 1$$\n\n",
        "## C\n\nTwo. It is:\n\n$$x$$\n\n- one.\n\n**Further reading**\n\n- a book.\n\n",
        "## D\n\nThree.\n\n**Further reading**\n\n- a book.\n",
    ]
    _, *found = slides([{"cell_type": "markdown", "source": text} for text in texts])
    assert [(slide.announced, slide.items) for slide in found] == [
        ("So a replica", ["fetches."]),
        ("", ["one."]),
        ("", []),
    ]
    html = page(found)
    assert html.index("one.") < html.index('class="formula"') < html.index("So a replica") < html.index("fetches")
    assert html.count("So a replica") == 1


def test_page_loads_nothing_from_elsewhere():
    found = [slide for slide in slides(cells(NOTEBOOKS[1])) if not slide.picture]
    text = page(found)
    assert text.count("<section") == len(found)
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)""", text)
    assert all(address.startswith("data:image/") for address in loaded)
    assert "url(" not in text


@pytest.mark.labs  # it draws
def test_picture_is_in_the_page():
    (slide,) = [each for each in slides(cells(NOTEBOOKS[1])) if each.picture][:1]
    text = page([slide], 2)
    assert text.count("data:image/webp") == 2
    assert re.search(r'alt="[^"]{20,}"', text)


@pytest.mark.parametrize("tex", [r"\frac1n \sum_i x_i", r"a \le \sqrt M", r"\tfrac12 \lVert w \rVert", r"i \bmod 8"])
def test_formula_is_drawn(tex):
    assert "data:image/svg+xml" in formulas.html(tex)


def test_unknown_formula_stays_readable():
    assert (
        formulas.html(r"\begin{cases} 1 & x < 2 \end{cases}")
        == r"<code>\begin{cases} 1 &amp; x &lt; 2 \end{cases}</code>"
    )


@pytest.mark.labs  # a hundred formulas
def test_nearly_all_formulas_are_drawn():
    """Matrices and cases are not; few others may be."""
    texts = ["".join(cell["source"]) for path in NOTEBOOKS for cell in cells(path) if cell["cell_type"] == "markdown"]
    found = [tex for text in texts for tex in formulas.DISPLAY.findall(re.sub(r"`[^`]*`", "", text))]
    code = [tex for tex in found if formulas.html(tex).startswith("<code>")]
    assert len(code) < 0.2 * len(found), code


def test_markdown_cannot_inject():
    assert "<script>" not in inline("a <script>alert(1)</script> $x$ **b**")
    assert "<strong>b</strong>" in inline("a $x$ **b**")
