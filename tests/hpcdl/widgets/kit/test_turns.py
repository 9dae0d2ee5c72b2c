"""Drawings that several threads ask for: never two at once, the newest state in the end, and no deadlock."""

import threading
import time

import pytest

from hpcdl.widgets import Explorable, LiveFigure
from hpcdl.widgets.kit.controls import player, slider
from hpcdl.widgets.kit.turns import DrawingTurns

pytestmark = pytest.mark.timeout(60)


def in_threads(*work) -> None:
    """Do all of it at once; a thread that does not end in time fails the test."""
    threads = [threading.Thread(target=one, daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads), "a drawing waits for ever"


class Slow:
    """A drawing that takes a moment and notes how many are at work, and the states that it saw."""

    def __init__(self):
        self.at_work, self.most, self.states = 0, 0, []

    def __call__(self, state, axes) -> str:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        self.states.append(state)
        axes.plot([0, 1], list(state.values())[:2])
        time.sleep(0.005)
        self.at_work -= 1
        return str(state)


def pair(draw) -> Explorable:
    return Explorable(draw, {"a": player("a", 0, 0, 100), "b": slider("b", 0, 0, 100)})


def moves(control, count: int = 20):
    def move() -> None:
        for value in range(1, count + 1):
            control.value = value

    return move


def test_two_controls_moved_by_two_threads_are_drawn_one_at_a_time():
    draw = Slow()
    shown = pair(draw)
    in_threads(moves(shown.controls["a"]), moves(shown.controls["b"]))
    assert draw.most == 1
    assert "cannot be drawn" not in shown.picture.caption
    assert shown.picture.caption == str({"a": 20, "b": 20}), "the newest state stays"


def test_states_never_go_back():
    draw = Slow()
    shown = pair(draw)
    in_threads(moves(shown.controls["a"]), moves(shown.controls["b"]))
    for name in ("a", "b"):
        seen = [state[name] for state in draw.states]
        assert seen == sorted(seen)


def test_pictures_of_several_cells_share_one_pen():
    draw = Slow()
    shown = [pair(draw) for _ in range(3)]
    live = LiveFigure(draw, seconds=0)
    in_threads(
        *(moves(one.controls["a"], 8) for one in shown), lambda: [live.update({"a": n, "b": n}) for n in range(8)]
    )
    assert draw.most == 1
    assert [one.state["a"] for one in shown] == [8] * 3
    assert live.caption == str({"a": 7, "b": 7})


def test_states_that_are_outdated_before_their_turn_are_not_drawn():
    turns, drawn, begun, go_on = DrawingTurns(), [], threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(10)

    def later() -> None:
        for number in range(5):
            threading.Thread(target=turns.take, args=("picture", lambda number=number: drawn.append(number))).start()
            time.sleep(0.02)
        go_on.set()
        turns.take("picture", lambda: drawn.append("last"))

    in_threads(lambda: turns.take("another", first), lambda: begun.wait(10) and later())
    deadline = time.monotonic() + 5
    while turns._wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert drawn[-1] == "last"
    assert len(drawn) <= 2


def test_a_drawing_may_set_another_control():
    def draw(state, axes) -> str:
        shown["picture"].controls["b"].value = 2 * state["a"]
        return str(state)

    shown = {}
    shown["picture"] = pair(lambda state, axes: "at first")
    shown["picture"].picture.draw = draw
    in_threads(lambda: setattr(shown["picture"].controls["a"], "value", 7))
    assert shown["picture"].picture.caption == str({"a": 7, "b": 14})


def test_a_drawing_may_move_another_picture():
    other = pair(lambda state, axes: str(state))

    def draw(state, axes) -> str:
        other.controls["a"].value = state["a"]
        return "moved"

    shown = pair(draw)
    in_threads(lambda: setattr(shown.controls["a"], "value", 7), moves(other.controls["b"], 5))
    assert other.picture.caption == str({"a": 7, "b": 5})


def test_two_controls_that_set_each_other_come_to_an_end():
    def draw(state, axes) -> str:
        if shown:
            shown[0].controls["b"].value = (state["b"] + 1) % 100
        return "never the same"

    shown = []
    shown.append(pair(draw))
    in_threads(lambda: setattr(shown[0].controls["a"], "value", 7))


def test_after_an_interrupt_the_next_one_draws():
    turns, drawn = DrawingTurns(), []

    def interrupted() -> None:
        turns.take("picture", lambda: drawn.append("later"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turns.take("picture", interrupted)
    in_threads(lambda: turns.take("picture", lambda: drawn.append("next")))
    assert drawn == ["next"]
