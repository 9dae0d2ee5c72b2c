"""What a busy machine spoiled is not kept; rates that do not hold are measured again."""

import functools
import math
import types

import pytest
import torch

from hpcdl.conv import Problem, auto, calibration, model
from hpcdl.machine import Quiet


class Machine:
    """A clock, and a processor for which `busy` of the time is waited."""

    def __init__(self, busy: float):
        self.busy, self.now = busy, 0.0

    def quiet(self):
        return Quiet(lambda: self.now, lambda: self.busy * self.now)


@pytest.mark.parametrize(("busy", "kept"), [(0.0, 1), (0.05, 1), (0.3, 0), (2.0, 0)])
def test_rates_of_a_busy_machine_are_not_kept(tmp_path, monkeypatch, busy, kept):
    """They are used, and measured again a minute later."""
    machine = Machine(busy)

    def calibrate(dtype):
        machine.now += 3.0
        return {"torch": [machine.now]}

    monkeypatch.setenv("HPCDL_DATA", str(tmp_path))
    monkeypatch.setattr(calibration, "calibrate", calibrate)
    monkeypatch.setattr(calibration, "Quiet", machine.quiet)
    monkeypatch.setattr(calibration, "time", types.SimpleNamespace(monotonic=lambda: machine.now))
    calibration.rates.cache_clear()
    assert calibration.rates(torch.float32, 2) == {"torch": [3.0]}
    assert (tmp_path / "convolution.json").exists() is bool(kept)
    assert not calibration.renew()
    machine.busy, machine.now = 0.0, 3.0 + calibration.AGAIN
    assert calibration.renew() is not bool(kept)
    assert calibration.rates(torch.float32, 2) == {"torch": [3.0 if kept else 6.0 + calibration.AGAIN]}
    assert (tmp_path / "convolution.json").exists()
    assert calibration.recalibrate()
    assert not calibration.recalibrate()


def test_a_machine_that_is_busy_for_long_is_not_measured_to_the_end(tmp_path, monkeypatch):
    """Then `auto` is torch's own convolution, until it is time to measure again: after one minute, after two more..."""
    machine, calls = Machine(busy=5.0), []

    def seconds(call, clock):
        machine.now += 1.0
        calls.append(call)
        return 1.0

    monkeypatch.setenv("HPCDL_DATA", str(tmp_path))
    monkeypatch.setattr(calibration, "Quiet", machine.quiet)
    monkeypatch.setattr(calibration, "_seconds", seconds)
    monkeypatch.setattr(calibration, "_calls", lambda situation, names: dict.fromkeys(names, lambda: None))
    clocks = ("monotonic", "perf_counter", "thread_time")
    monkeypatch.setattr(calibration, "time", types.SimpleNamespace(**dict.fromkeys(clocks, lambda: machine.now)))
    calibration.recalibrate()
    auto.forget()
    layer = model.Situation(Problem(1, 16, 8, 8, 16, 3, 3), torch.float32, True, True, 2)
    for minutes in (1, 2, 4):
        begin = machine.now
        assert auto.choose(layer) == "torch"
        assert calibration.LIMIT <= machine.now - begin <= calibration.LIMIT + 1
        auto.experience.note(layer, "torch", 1.0)
        machine.now += 60 * minutes - 1
        measured = len(calls)
        assert auto.choose(layer) == "torch"
        assert len(calls) == measured, "it is too early to measure again"
        machine.now += 1
    assert not (tmp_path / "convolution.json").exists()
    calibration.recalibrate()
    auto.forget()


@pytest.mark.parametrize(
    ("share", "slower", "kept"), [(1.0, 1.0, True), (1.0, 1.1, True), (0.2, 3.0, True), (1.0, 1.5, False)]
)
@pytest.mark.parametrize("number", range(calibration.PASSES))
def test_measurements_that_differ_are_not_kept(tmp_path, monkeypatch, share, slower, kept, number):
    """A guest does not see that its host is busy, only that one pass is slower. A short disturbance does not count."""
    begun, least = [], {}

    def measure(situation, seconds, limit, *, warm_up):
        begun.append(situation)
        disturbed = number * every <= len(begun) - 1 < (number + share) * every
        found = {(name, situation): sum(model.works(name, situation)) for name in model.candidates(situation.problem)}
        least.update(found)
        return {key: seconds * (slower if disturbed else 1.0) for key, seconds in found.items()}

    every = 2 * len(calibration.SAMPLES + calibration.NARROW_SAMPLES)
    monkeypatch.setenv("HPCDL_DATA", str(tmp_path))
    monkeypatch.setattr(calibration, "Quiet", Machine(0.0).quiet)
    monkeypatch.setattr(calibration, "_measure", measure)
    calibration.recalibrate()
    known = calibration.rates(torch.float32, 2)
    assert (tmp_path / "convolution.json").exists() is kept
    assert bool(calibration._due) is not kept
    for (name, situation), seconds in least.items():
        assert model.predict(name, situation, known) == pytest.approx(seconds)
    calibration.recalibrate()


@pytest.mark.parametrize("threads", [1, 2])
def test_candidates_keep_their_order_on_a_busy_machine(monkeypatch, threads):
    """A call within a time slice takes its own seconds, a longer one three times as many; their work is the same."""
    slice_, now, worked, before, used = 3e-3, [0.0], [0.0], torch.get_num_threads(), []

    def call(name, situation):
        work = 1e-9 * sum(model.works(name, situation))
        used.append((situation, torch.get_num_threads()))
        worked[0] += work
        now[0] += work if work < slice_ else 3 * work

    def calls(situation, names):
        return {name: functools.partial(call, name, situation) for name in names}

    clock = types.SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: worked[0])
    monkeypatch.setattr(calibration, "time", clock)
    monkeypatch.setattr(calibration, "Quiet", lambda: Quiet(lambda: now[0], lambda: now[0] - worked[0]))
    monkeypatch.setattr(calibration, "LIMIT", math.inf)
    monkeypatch.setattr(calibration, "_calls", calls)
    torch.set_num_threads(threads)
    try:
        known = calibration.calibrate(torch.float32)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert isinstance(known, calibration.Unsteady)
    for situation, _ in used:
        for name in model.candidates(situation.problem):
            seconds = 1e-9 * sum(model.works(name, situation)) / threads
            assert model.predict(name, situation, known) == pytest.approx(seconds)
    assert used[-1][1] == 1


@pytest.mark.parametrize("busy", [0.0, 0.05])
def test_a_slow_machine_takes_the_time_that_it_needs(monkeypatch, busy):
    machine = Machine(busy)
    monkeypatch.setattr(calibration, "Quiet", machine.quiet)
    limit = calibration._Limit()
    monkeypatch.setattr(calibration.time, "perf_counter", lambda: math.inf)
    machine.now = 100.0
    assert not limit


@pytest.mark.parametrize(("seen", "again"), [(1.0, False), (1.9, False), (2.5, True), (0.4, True)])
def test_rates_that_do_not_hold_are_measured_again(tmp_path, monkeypatch, seen, again):
    """Once a day: a problem that the model does not know would else cost a calibration in each process. Calls on a busy
    machine do not count."""
    measured, now, machine = [], [1e9], Machine(5.0)
    monkeypatch.setenv("HPCDL_DATA", str(tmp_path))
    monkeypatch.setattr(calibration, "calibrate", lambda dtype: measured.append(dtype) or {"torch": [1.0]})
    monkeypatch.setattr(auto, "predict", lambda name, situation, rates: rates["torch"][0])
    monkeypatch.setattr(auto, "Quiet", machine.quiet)
    monkeypatch.setattr(calibration.time, "time", lambda: now[-1])
    calibration.rates.cache_clear()
    auto.forget()
    layer = model.Situation(Problem(1, 16, 8, 8, 16, 3, 3), torch.float32, True, True, 2)

    def note():
        for _ in range(3 * auto.Experience.CALLS):
            machine.now += 1.0
            auto.experience.note(layer, "torch", seen)

    note()
    assert len(measured) == 1
    machine.busy = 0.0
    note()
    assert len(measured) == 1 + again
    now.append(now[-1] + calibration.DAY)
    note()
    assert len(measured) == 1 + 2 * again
    calibration.rates.cache_clear()
    auto.forget()
