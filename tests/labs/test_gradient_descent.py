"""What lab 02 tells its readers they will see is what its code computes."""

import matplotlib.pyplot as plt
import pytest
import torch

from autograder.authors import build
from hpcdl.widgets.pictures import descent_path, learning_rates


@pytest.fixture(scope="module")
def lab():
    """The names of the solved notebook after its cells ran, without checks and explorables."""
    names, patch = {}, pytest.MonkeyPatch()
    patch.setattr(plt, "show", lambda: plt.close("all"))
    backend, settings = plt.get_backend(), dict(plt.rcParams)
    plt.switch_backend("agg")
    for cell in build.solved("gradient_descent").cells:
        if cell.cell_type == "code" and not cell.source.startswith("check(") and "explorable()" not in cell.source:
            exec(compile(cell.source, cell.id, "exec"), names)
    yield names
    patch.undo()
    plt.rcParams.update(settings)
    plt.switch_backend(backend)


def test_picture_turns_at_the_named_learning_rates():
    limit = descent_path.max_stable_lr(descent_path.problem().H)
    assert limit / 2 == pytest.approx(0.2, abs=0.01)
    assert limit == pytest.approx(0.4, abs=0.01)


def test_the_best_learning_rate_stands_close_to_the_cliff():
    final = learning_rates.losses(learning_rates.SWEEP, 40, 5, 0.0)[-1]
    assert 0.9 < learning_rates.SWEEP[final.argmin()] < 1


@pytest.mark.labs  # trains
def test_the_digits_obey_the_limit_and_one_direction_is_much_steeper(lab):
    curves, eigenvalues = lab["curves"], lab["eigenvalues"]
    assert eigenvalues[-1] > 10 * eigenvalues[-2]
    assert curves[0.98][-1] < 0.2 * curves[0.98][0]
    assert curves[1.02][-1] > 100
    assert curves[0.5][1] < min(curves[0.1][1], curves[0.98][1])  # at half the limit the first step lands
    assert int((lab["X"] == 0).all(dim=0).sum()) > 0


@pytest.mark.labs  # trains
def test_progress_per_epoch_falls_as_the_batch_grows(lab):
    ends = [losses[-1] for _, losses, _ in lab["rows"].values()]
    assert ends == sorted(ends)
    assert lab["rows"][1][2] > 0.95


@pytest.mark.labs  # trains
def test_time_per_epoch_falls_steeply_at_first(lab):
    seconds = {size: row[0] for size, row in lab["rows"].items()}
    assert seconds[1] > 3 * seconds[16]


@pytest.mark.labs  # trains
def test_parallel_gradient_is_the_serial_one(lab):
    serial = lab["serial"]
    assert (lab["together"] - serial).norm() < 1e-5 * serial.norm()
    assert (lab["plain_mean"] - serial).norm() > 1e-2 * serial.norm()


@pytest.mark.labs  # trains
def test_a_schedule_hurts_a_cautious_rate_and_wins_with_a_high_peak(lab):
    end = {key: losses[-1] for key, (losses, _) in lab["runs"].items()}
    lowest = {}
    for method in ("plain", "momentum", "Adam"):
        peaks = sorted({peak for name, peak, _ in end if name == method})
        assert end[method, peaks[0], False] < end[method, peaks[0], True]
        assert end[method, peaks[-1], True] < end[method, peaks[-1], False]
        best = {scheduled: min(peaks, key=lambda peak: end[method, peak, scheduled]) for scheduled in (False, True)}
        assert best[True] > best[False]
        lowest[method] = end[method, best[True], True]
        assert lowest[method] < end[method, best[False], False]
    assert lowest["Adam"] < lowest["momentum"] < lowest["plain"]


@pytest.mark.labs  # trains
def test_held_out_accuracies_hardly_differ(lab):
    accuracies = torch.tensor([right for _, right in lab["runs"].values()])
    assert accuracies.min() > 0.9
    assert accuracies.quantile(0.9) - accuracies.quantile(0.1) < 0.03
