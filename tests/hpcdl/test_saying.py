"""A line that says how far a loop is."""

import threading
from functools import partial
from types import SimpleNamespace

import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure

from hpcdl import saying as module
from hpcdl.widgets import progress, saying, style

SHOWN = 60.0  # seconds within which a line is shown, on a busy machine too


class Page:
    """What a notebook shows; `until` waits for a text."""

    def __init__(self):
        self.lines, self.news = [], threading.Condition()

    def display(self, content, raw, display_id=False):
        with self.news:
            self.lines.append(content.get("text/plain"))
            self.news.notify_all()
        return SimpleNamespace(update=self.display)

    def until(self, text):
        with self.news:
            assert self.news.wait_for(lambda: f"{text} (0 s)" in self.lines, SHOWN)


@pytest.fixture
def page(monkeypatch):
    page = Page()
    monkeypatch.setattr(module, "display", page.display)
    page.shell = SimpleNamespace(kernel=1, execution_count=3)
    monkeypatch.setattr(module, "get_ipython", lambda: page.shell)
    monkeypatch.setattr(module, "StatusLine", partial(module.StatusLine, clock=lambda: 7.0))
    monkeypatch.setattr(module, "QUIET", 0.0)
    monkeypatch.setattr(module, "PAUSE", 0.0)
    return page


def test_a_loop_says_which_item_is_at_work(page):
    names = ("ring", len, ("tree", 1), 4)
    done = []
    for item, said in zip(progress(names, "step"), (": ring", ": len", ": tree", ""), strict=True):
        page.until(f"step {len(done) + 1} of 4{said}")
        done.append(item)
    assert tuple(done) == names
    assert page.lines[-1] is None


def test_the_line_ends_with_an_error(page):
    def loop():
        for _ in progress([1], "step"):
            page.until("step 1 of 1")
            raise NotImplementedError

    def block():
        with saying("two processes train"):
            page.until("two processes train")
            raise NotImplementedError

    for fails in (loop, block):
        with pytest.raises(NotImplementedError):
            fails()
        assert page.lines[-1] is None


def test_a_line_that_an_interruption_left_ends_with_its_cell(page):
    line = module._Follower(lambda: "two processes train")
    line.begin()
    page.until("two processes train")
    page.shell.execution_count += 1
    line._thread.join(SHOWN)
    assert not line._thread.is_alive()


@pytest.mark.parametrize("quick", [True, False])
def test_what_is_quick_or_elsewhere_says_nothing(page, monkeypatch, quick):
    monkeypatch.setattr(module, "QUIET", SHOWN if quick else 0.0)
    if not quick:
        monkeypatch.setattr(module, "get_ipython", lambda: None)
    assert list(progress("ab", "step")) == ["a", "b"]
    assert not page.lines


PROSE = "Waiting for your mse_grad: solve its exercise above, run its cell, then run this one again.\nIn your mse_grad"


def test_sentences_are_folded_on_a_page_alone(page, monkeypatch, capsys):
    """Between words, for a narrow page: printed lines scroll there."""
    module.sentences(PROSE)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= module.FOLDED
    assert shown.split() == PROSE.split()
    assert shown.endswith("\nIn your mse_grad\n")
    monkeypatch.setattr(module, "get_ipython", lambda: None)
    module.sentences(PROSE)
    assert capsys.readouterr().out == f"{PROSE}\n"


@pytest.mark.parametrize("kernel", [True, False])
def test_printed_tables_keep_their_rows_on_a_page(kernel, monkeypatch):
    shown = []
    shell = SimpleNamespace(kernel=1, display_formatter=DisplayFormatter())
    monkeypatch.setattr(style, "get_ipython", lambda: shell if kernel else None)
    monkeypatch.setattr(style, "display", lambda content, raw: shown.append(content["text/html"]))
    style.use()
    assert ["white-space: pre;" in html for html in shown] == [True] * kernel
    assert ("text/html" in shell.display_formatter.format(Figure())[0]) == kernel, "plots follow the page's theme"
