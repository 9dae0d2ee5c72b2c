"""The dashboard of the trainer: it shows what the ranks record, and continues from a checkpoint on another mesh."""

import json
import shutil
import time

import pytest
from matplotlib.figure import Figure

from hpcdl.cluster import Cluster, Record
from hpcdl.training import Configuration, run_on
from hpcdl.training.hybrid.configuration import ConfigurationError
from hpcdl.widgets.pictures.mesh_training import COLORS, LAYOUT, append, bars, draw, fresh, kinds_held, kinds_sent
from hpcdl.widgets.pictures.training_dashboard import Dashboard

OPTIONS = {"model": "mlp", "mesh": "pipeline=2", "microbatches": 4, "precision": "fp64"}


def quiet(line):
    """Ignore what is published."""


@pytest.fixture(scope="module")
def ranks():
    """The records of two simulated ranks, three steps."""
    return run_on(None, say=quiet, steps=3, **OPTIONS)


@pytest.fixture
def state():
    return fresh(Configuration(model="mlp", mesh=(1, 2, 1, 1), microbatches=4, steps=3))


def test_a_step_is_shown_once_all_ranks_reported(state, ranks):
    for step in range(3):
        append(state, Record(0, 0.1, ranks[0][step]))  # rank 0 is ahead
    assert (state["steps"], state["last"]) == ([], {})
    append(state, Record(1, 0.2, ranks[1][0]))
    assert [record["step"] for record in state["steps"]] == [1]
    append(state, Record(1, 0.3, ranks[1][1]))
    assert [record["step"] for record in state["last"].values()] == [2, 2]


def test_steps_that_are_done_again_replace_the_first_ones(state, ranks):
    for step in (0, 1, 2, 1):
        for rank in (0, 1):
            append(state, Record(rank, 0.1, ranks[rank][step]))
    assert [record["step"] for record in state["steps"]] == [1, 2]


def test_bytes_are_shown_by_kind(ranks):
    """Each byte has one kind: as the trainer counts what is sent, and `hpcdl.memory` what is held."""
    (*_, record), _ = ranks
    sent, held = kinds_sent(record), kinds_held(record)
    assert (sum(sent.values()), sum(held.values())) == (record["bytes_sent"], record["peak_bytes"])
    assert sent["activations"] == record["activations_bytes"] > 0
    assert held["optimizer states"] == record["peak_by_kind"]["optimizer states"] > 0
    assert list(sent) == list(held) == list(COLORS)


def test_before_the_first_step_it_says_so(state):
    assert draw(state, Figure().subplot_mosaic(LAYOUT)) == "No rank has reported yet."


def test_a_mesh_that_does_not_fit_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="has 4 ranks, and there are 2 engines"):
        Dashboard(Cluster(n=2), model="mlp", mesh="data=4")


# On real engines


def until(condition, seconds=60.0):
    """Whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2) as running:
        yield running


@pytest.mark.mpi
@pytest.mark.labs  # starts engines
def test_it_shows_what_the_ranks_wrote(cluster, tmp_path):
    board = Dashboard(cluster, log=str(tmp_path), steps=4, **OPTIONS)
    shutil.rmtree(cluster.directory / "checkpoint", ignore_errors=True)
    board.resume()
    board.wait(60)
    assert board.picture.caption == "there is no checkpoint: press start, which saves one every 5 steps."
    board.start()
    board.wait(60)
    written = {}
    for rank in (0, 1):
        lines = (tmp_path / f"rank-{rank}.jsonl").read_text(encoding="utf-8").splitlines()
        written[rank] = [json.loads(line) for line in lines]
    assert [record["step"] for record in written[0]] == [1, 2, 3, 4]
    axes, last = board.picture.axes, {rank: records[-1] for rank, records in written.items()}
    for name, key in (("loss", "loss"), ("rate", "images_per_second")):
        (line,) = axes[name].lines
        assert list(line.get_ydata()) == [record[key] for record in written[0]]
    for name, key, unit in (("sent", "bytes_sent", 2**10), ("held", "peak_bytes", 2**20)):
        drawn = {rank: [bar for bar in axes[name].patches if int(bar.get_y() + 0.5) == rank] for rank in (0, 1)}
        ends = {rank: max(bar.get_x() + bar.get_width() for bar in parts) * unit for rank, parts in drawn.items()}
        assert ends == pytest.approx({rank: last[rank][key] for rank in (0, 1)}, rel=1e-12)
        for rank, parts in drawn.items():
            kinds = kinds_sent(last[rank]) if name == "sent" else kinds_held(last[rank])
            assert [bar.get_width() * unit for bar in parts] == list(kinds.values())
    legend = {text.get_text() for text in axes["sent"].get_legend().get_texts()}
    assert {"parameters", "gradients", "activations"} <= legend <= set(COLORS) - {"tensor", "sequence"}
    shares = [last[rank]["waited"] / last[rank]["seconds"] for rank in (0, 1)]
    assert [text.get_text() for text in axes["timeline"].texts] == [f"waits {100 * share:.0f} %" for share in shares]
    for rank in (0, 1):
        waits = [
            bar.end - bar.start for bar in bars(board.picture.state["last"]) if (bar.rank, bar.kind) == (rank, "wait")
        ]
        assert sum(waits) == pytest.approx(last[rank]["waited"])
    kinds = [(bar.rank, bar.kind) for bar in bars(board.picture.state["last"])]
    assert all(kinds.count((rank, kind)) == 4 for rank in (0, 1) for kind in ("forward", "backward"))
    assert board.picture.caption.startswith(f"Step 4 of 4 on pipeline=2: loss {last[0]['loss']:.3f}, ")


@pytest.mark.mpi
@pytest.mark.labs  # starts engines, and ends one
def test_a_rank_that_is_killed_and_another_mesh_change_no_loss(cluster):
    board = Dashboard(cluster, steps=100_000, **OPTIONS)

    def steps():
        return len(board.picture.state.get("steps", ()))

    board.start()
    assert until(lambda: steps() >= 6)
    board.pause()
    assert until(lambda: board.picture.caption.startswith("Paused. Press continue. Step "))
    board.controls["slow_rank"].value = 1
    board.kill()
    board.pause()
    board.wait(60)
    assert "rank 1 died" in board.picture.caption
    before = steps()
    board.controls["mesh"].value = "tensor=2"
    board.resume()
    assert until(lambda: steps() > before + 3)
    assert board.picture.state["configuration"].mesh == (1, 1, 2, 1)
    board.stop()
    board.wait(60)
    assert board.picture.caption.startswith("Stopped. Step ")
    found = board.picture.state["steps"]
    assert [record["step"] for record in found] == list(range(1, len(found) + 1))
    (alone,) = run_on(None, say=quiet, measure=False, steps=len(found), **{**OPTIONS, "mesh": ""})
    assert [record["loss"] for record in found] == pytest.approx([record["loss"] for record in alone], rel=1e-12)
