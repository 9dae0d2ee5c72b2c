"""The live picture of a training and its dashboard: curves with units, pause, stop, a killed rank, scaling."""

import math
import statistics
import threading
import time

import pytest
from matplotlib.figure import Figure

from hpcdl.cluster import Cluster, ClusterError, Record
from hpcdl.training import scaling
from hpcdl.widgets.pictures import training_dashboard, training_scaling
from hpcdl.widgets.pictures.training import TrainingFigure, append, bars, draw, fresh, least, smooth
from hpcdl.widgets.pictures.training_dashboard import Dashboard, short

pytestmark = pytest.mark.labs("ddp")

SPANS = [("load", 0, 0.001), ("forward", 0.001, 0.003), ("backward", 0.003, 0.008), ("bucket 0", 0.005, 0.009)]
LIVE = [["loss", "accuracy", "rate"], ["timeline"] * 3]


def state(ranks, steps, epochs=3):
    one = {
        "epoch": [epochs * (i + 1) / steps for i in range(steps)],
        "loss": [2.0 / (i + 1) for i in range(steps)],
        "images_per_second": [1000.0] * steps,
    }
    return {"epochs": epochs, "ranks": dict.fromkeys(range(ranks), one)}


def drawn(state, layout=(("loss", "rate"),)):
    axes = Figure().subplot_mosaic([list(row) for row in layout])
    return axes, draw(state, axes)


@pytest.mark.parametrize("ranks", [1, 2, 4, 9])
def test_each_rank_has_its_curves_and_its_name(ranks):
    axes, sentence = drawn(state(ranks, 30))
    assert len(axes["rate"].lines) == ranks
    assert len(axes["loss"].lines) == 2 * ranks
    assert [text.get_text() for text in axes["rate"].get_legend().get_texts()] == [f"rank {r}" for r in range(ranks)]
    assert axes["rate"].get_ylabel() == "thousand images/s"
    assert axes["loss"].get_xlabel() == axes["rate"].get_xlabel() == "epochs"
    assert f"{1000 * ranks:,} images/s" in sentence
    assert "Epoch 3.0 of 3" in sentence


def test_before_the_first_record_it_says_so():
    assert drawn({"epochs": 3, "ranks": {}})[1] == "No rank has reported yet."
    assert drawn(fresh(3), LIVE)[1] == "No rank has reported yet."


def test_smoothing_keeps_constants_and_leaves_out_ranks_without_images():
    assert smooth([3.0] * 5) == pytest.approx([3.0] * 5)
    assert smooth([1.0, math.nan, 1.0]) == pytest.approx([1.0] * 3)
    assert math.isnan(smooth([math.nan])[0])


def test_records_are_added_and_change_the_picture():
    picture = TrainingFigure(epochs=2)
    picture.seconds = 0
    images = []
    for step in range(1, 4):
        for rank in range(2):
            value = {"epoch": step / 10, "loss": 1 / step, "images_per_second": 500.0 * step}
            picture.add(Record(rank, step * 0.1, value))
        images.append(picture.image.value)
    assert len(set(images)) == 3
    assert picture.state["ranks"][1]["loss"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert "cannot be drawn" not in picture.caption


def test_a_step_is_a_timeline_and_the_accuracy_a_curve():
    live = fresh(2)
    for rank in range(2):
        value = {"epoch": 1.0, "loss": 1.0, "images_per_second": 500.0, "spans": SPANS, "accuracy": 0.75}
        append(live, Record(rank, 0.1, value))
    axes, sentence = drawn(live, LIVE)
    assert live["accuracy"] == [(1.0, 0.75)]
    assert "75.0 % of the held-out digits right" in sentence
    labels = [text.get_text() for text in axes["timeline"].get_legend().get_texts()]
    assert labels == ["forward", "backward", "message"]
    assert axes["timeline"].get_xlabel() == "time, ms"
    assert axes["timeline"].get_xlim()[1] == pytest.approx(10.1)


def test_what_went_wrong_is_one_sentence():
    error = ClusterError("rank 1 died (its process was killed from outside); it was last seen there\nand more", [])
    assert short(error) == "rank 1 died (its process was killed from outside)."


# Scaling


def test_the_picture_of_scaling_grows_point_by_point():
    shown = []
    for count in range(3):
        points = [scaling.Point(p, 64, 0.01 / p**0.5, 0.01 / p) for p in (1, 2)][:count]
        axes = Figure().subplot_mosaic([["speed", "efficiency"]])
        shown.append(training_scaling.draw({"points": points, "weak": False}, axes))
    assert shown[0].startswith("Measuring")
    assert shown[1].startswith("1 rank, 64 images a step: 10.0 ms, predicted 10.0 ms; efficiency 100 %.")
    assert shown[2].startswith("2 ranks, 64 images a step: 7.1 ms, predicted 5.0 ms; efficiency 71 %.")


# The dashboard on real engines


@pytest.fixture(scope="module")
def board():
    with Cluster(2) as cluster:
        yield Dashboard(cluster)


def until(condition, seconds=30.0):
    """Whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def run_on(board):
    board.start()
    assert until(lambda: board.picture.caption.startswith("Epoch"))


def run_slowly_on(board):
    """Train eight times slower: on a busy machine the picture is late, and the run must not end before it."""
    board.controls["factor"].value = 8.0
    run_on(board)


def usable(board):
    return board.cluster.run(lambda comm: comm.rank) == [0, 1]


@pytest.mark.mpi
def test_dashboard_pauses_resumes_and_stops(board):
    run_slowly_on(board)
    before = board.picture.image.value
    assert until(lambda: board.picture.image.value != before)
    board.pause()
    assert until(lambda: board.picture.caption.startswith("Paused. Press continue."))
    time.sleep(1.0)
    held = board.picture.image.value
    time.sleep(1.5)
    assert board.picture.image.value == held
    board.pause()
    assert until(lambda: board.picture.image.value != held)
    board.stop()
    board.wait(10)
    assert not board.running
    assert board.picture.caption.startswith("Stopped. Epoch")
    board.controls["factor"].value = 1.0
    assert usable(board)


@pytest.mark.mpi
def test_a_killed_rank_is_a_sentence_and_the_next_start_works(board):
    run_slowly_on(board)
    board.controls["slow_rank"].value = 1
    board.kill()
    board.wait(20)
    assert not board.running
    assert "died (its process was killed from outside" in board.picture.caption
    board.controls["factor"].value = 1.0
    assert usable(board)
    run_on(board)
    board.stop()
    board.wait(10)
    assert not board.running


@pytest.mark.mpi
def test_stop_ends_a_run_that_is_paused(board):
    run_on(board)
    board.pause()
    time.sleep(0.5)
    board.stop()
    board.wait(10)
    assert not board.running
    assert usable(board)


@pytest.mark.mpi
def test_a_slow_rank_slows_all(board):
    board.controls["slow_rank"].value, board.controls["factor"].value = 0, 1.0

    def speed_of_rank_1(factor):
        board.controls["factor"].value = factor
        run_on(board)
        rates = board.picture.state["ranks"][1]["images_per_second"]
        assert until(lambda: len(rates) >= 25)
        board.stop()
        board.wait(10)
        return statistics.median(rates[5:])

    assert speed_of_rank_1(1.0) > 2 * speed_of_rank_1(8.0), "rank 1 waits for rank 0"
    board.controls["factor"].value = 1.0


@pytest.mark.mpi
def test_scaling_measures_each_number_of_ranks(board):
    board.scale(weak=True)
    board.wait(60)
    assert not board.running
    assert "2 ranks, 128 images a step" in board._scaling.caption


@pytest.mark.mpi
def test_where_the_notebooks_engines_were_stopped_it_starts_its_own():
    cluster = Cluster(2)
    cluster.stop()
    board = Dashboard(cluster)
    assert not board.running
    run_on(board)
    assert board.cluster is not cluster
    board.stop()
    board.wait(10)
    assert usable(board)
    board.cluster.stop()


@pytest.mark.mpi
def test_it_goes_over_to_the_cluster_that_was_started_since(board, monkeypatch):
    gone = Cluster(4)
    gone.stop()
    monkeypatch.setattr(training_dashboard, "current", lambda: board.cluster)
    shown = Dashboard(gone)
    run_on(shown)
    assert shown.cluster is board.cluster
    assert (shown.controls["ranks"].max, shown.controls["slow_rank"].max) == (2, 1)
    shown.stop()
    shown.wait(10)
    assert usable(board)


@pytest.mark.mpi
def test_stopped_engines_are_a_sentence():
    with Cluster(2) as cluster:
        board = Dashboard(cluster)
        run_on(board)
    board.wait(20)
    assert not board.running
    assert board.picture.caption == "the engines were stopped while they worked. Press start to begin again."
    run_on(board)
    board.stop()
    board.wait(10)
    board.cluster.stop()


@pytest.mark.mpi
def test_a_cell_waits_for_the_training_and_the_training_for_a_cell(board, capsys):
    run_on(board)
    pids = [engine.process.pid for engine in board.cluster.engines]
    threading.Timer(1.5, board.stop).start()
    assert board.cluster.run(lambda comm: comm.rank, timeout=2) == [0, 1]
    board.wait(10)
    assert "The engines are busy with another run, such as the dashboard's training" in capsys.readouterr().out
    assert board.picture.caption.startswith("Stopped. Epoch")
    assert [engine.process.pid for engine in board.cluster.engines] == pids

    run = board.cluster.stream(lambda comm: time.sleep(3))
    board.start()
    assert until(lambda: board.picture.caption == training_dashboard.BUSY)
    board.stop()
    board.wait(10)
    assert board.picture.caption == "Stopped before it began: the engines are busy with a cell."
    assert list(run) == []
    assert run.results == [None, None]


def test_a_bucket_is_a_wait_until_the_last_rank_has_it():
    spans = {0: [("bucket 0", 0.001, 0.010)], 1: [("bucket 0", 0.008, 0.010)]}
    shortest = least(spans)
    assert shortest == {"bucket 0": pytest.approx(0.002)}
    first, second = (bars(rank, *spans[rank][0], shortest) for rank in (0, 1))
    assert [(bar.kind, bar.start, bar.end) for bar in first] == [
        ("wait", 0.001, pytest.approx(0.008)),
        ("message", pytest.approx(0.008), 0.010),
    ]
    assert second[0].start == pytest.approx(second[0].end), "the last rank waits for none"


def test_the_names_of_the_ranks_do_not_cover_their_curves():
    picture = TrainingFigure(epochs=3)
    picture.render({**fresh(3), **state(4, 30)})
    names = picture.axes["rate"].get_legend().get_window_extent()
    for line in picture.axes["rate"].lines:
        assert not names.count_contains(picture.axes["rate"].transData.transform(line.get_xydata()))
