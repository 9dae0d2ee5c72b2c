"""A notebook says which check is at work once they take long; the feedback takes that line's place."""

import IPython.display
import pytest

from autograder import api


class Output:
    """A notebook's output: what each line has shown, in order."""

    def __init__(self):
        self.lines = []

    def display(self, shown, display_id=None, **_):
        self.lines.append([shown])
        return self.Handle(self.lines[-1])

    class Handle:
        def __init__(self, line):
            self.update = lambda shown, **_: line.append(shown)


@pytest.fixture
def output(monkeypatch):
    page = Output()
    monkeypatch.setattr(IPython.display, "display", page.display)
    monkeypatch.setattr(api, "_shell", lambda: True)
    monkeypatch.setattr(api, "is_imported", lambda name: True)
    return page


@pytest.fixture
def slow(monkeypatch):
    """Each check takes a second of the line's clock, after `first` seconds."""
    seconds = iter(range(1000))
    monkeypatch.setattr(api.Line.__init__, "__defaults__", (lambda: next(seconds),))


def mse_loss(w, X, y):
    return ((X @ w - y) ** 2).mean()


def mse_grad(w, X, y):
    return 2 * X.T @ (X @ w - y) / len(y)


def test_slow_checks_are_announced_one_by_one(output, slow):
    api.check("gradient_descent.mse_grad")
    (line,) = output.lines
    titles = [check.title for check in api.find("gradient_descent.mse_grad")[0].checks.values() if not check.hidden]
    of = len(titles)
    told = [f"Check {number} of {of}: {title} …" for number, title in enumerate(titles, start=1) if number >= 2]
    assert [shown["text/plain"] for shown in line[:-1]] == told
    assert "&lt;" in line[0]["text/html"] or "<" not in line[0]["text/plain"]
    assert line[-1].result.passed


def test_fast_checks_show_their_feedback_alone(output, monkeypatch):
    monkeypatch.setattr(api.Line.__init__, "__defaults__", (lambda: 0.0,))
    api.check("gradient_descent.mse_grad", "gradient_descent.mse_loss")
    assert [len(line) for line in output.lines] == [1, 1]


def test_imports_are_told_at_once(output, monkeypatch):
    monkeypatch.setattr(api, "is_imported", lambda name: False)
    monkeypatch.setattr(api, "import_whole", lambda *names: None)
    api.check("gradient_descent.mse_grad")
    (line,) = output.lines
    assert line[0]["text/plain"] == api.IMPORTING
    assert line[-1].result.passed
