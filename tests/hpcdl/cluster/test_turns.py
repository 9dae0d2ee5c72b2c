"""Engines work for one run at a time: another thread's is waited for, aloud, and a notebook has one set of engines."""

import threading
import time

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from hpcdl.cluster import ClusterError
from hpcdl.cluster.turns import BUSY, EngineTurns, GaveUpError


class Work:
    """As a run: it has a thread, and is on until it is told."""

    def __init__(self):
        self.thread, self.at_work = threading.current_thread(), True


def in_a_thread(f):
    """What `f` returns in a thread that lives until the test ends."""
    found, done = [], threading.Event()
    threading.Thread(target=lambda: (found.append(f()), done.wait(20)), daemon=True).start()
    until(lambda: found)
    return found[0]


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_thread_waits_for_anothers_run_and_says_so_once(capsys):
    turns = EngineTurns()
    other = in_a_thread(lambda: turns.begin(Work))
    threading.Timer(0.5, lambda: setattr(other, "at_work", False)).start()
    began = time.monotonic()
    assert turns.begin(Work).at_work
    assert time.monotonic() - began > 0.4
    assert capsys.readouterr().out == BUSY + "\n"


def test_a_thread_does_not_wait_for_a_run_of_its_own(capsys):
    turns = EngineTurns()
    assert turns.begin(Work) is not turns.begin(Work)
    assert capsys.readouterr().out == ""


def test_what_waits_beside_the_notebook_prints_nothing_into_its_cells(capsys):
    turns = EngineTurns()
    mine, theirs = turns.begin(Work), []
    waiting = threading.Thread(target=lambda: theirs.append(turns.begin(Work)))
    waiting.start()
    time.sleep(0.3)
    assert not theirs
    mine.at_work = False
    waiting.join(10)
    assert theirs
    assert capsys.readouterr().out == ""


def test_interrupted_wait_leaves_the_other_run():
    turns = EngineTurns()
    other = in_a_thread(lambda: turns.begin(Work))

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(GaveUpError, match="Nothing was run: you stopped waiting") as caught:
        turns.begin(Work, interrupt)
    assert caught.value._render_traceback_() == [str(caught.value)]
    assert other.at_work


def test_who_waits_may_give_up_by_itself():
    turns = EngineTurns()
    in_a_thread(lambda: turns.begin(Work))
    with pytest.raises(ZeroDivisionError):
        turns.begin(Work, lambda: 1 / 0)


# Real engines


@pytest.fixture
def long():
    """Work for ten seconds, with a report by each rank now and then; it can be interrupted."""

    def long(comm):
        import time

        from hpcdl.cluster import publish

        for step in range(100):
            publish(step)
            time.sleep(0.1)

    return long


def followed(cluster, long, records):
    """A thread that follows `long` as a dashboard does; it ends with the error that it met."""
    errors = []

    def follow():
        try:
            run = cluster.stream(long)
            for record in run:
                records.append(record)
                if len(records) > 20:
                    break
            run.close()
        except ClusterError as error:
            errors.append(str(error))

    thread = threading.Thread(target=follow)
    thread.start()
    until(lambda: len(records) > 2)
    return thread, errors


@pytest.mark.mpi
@pytest.mark.labs  # starts engines
def test_a_run_with_a_short_limit_waits_for_a_training_and_stops_nothing(pair, who, long, capsys):
    records: list = []
    thread, errors = followed(pair, long, records)
    pids = [engine.process.pid for engine in pair.engines]
    assert [rank for rank, _ in pair.run(who, timeout=0.5)] == [0, 1]
    assert len(records) > 20, "the other run came to its end first"
    assert BUSY in capsys.readouterr().out
    thread.join(10)
    assert not errors
    assert [engine.process.pid for engine in pair.engines] == pids


@pytest.mark.mpi
@pytest.mark.labs  # starts engines
def test_stop_from_another_thread_is_a_sentence(started, long):
    cluster, records = started(2), []
    thread, errors = followed(cluster, long, records)
    processes = [engine.process for engine in cluster.engines]
    cluster.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert errors == ["the engines were stopped while they worked"]
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    other = cluster.again()
    assert (other.n, other.stopped, other.engines) == (2, False, [])


COUNT = """
import psutil

def words(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []  # a lifeline's `sleep` ends in every second

commands = [words(p) for p in psutil.Process().children(recursive=True)]
engines = [c for c in commands if "hpcdl.cluster.engine" in " ".join(c)]
print(len([c for c in engines if "mpiexec" not in c[0] and "/sh" not in c[0]]) , "engines")
"""


@pytest.mark.mpi
@pytest.mark.labs  # a kernel with engines of its own, twice
def test_a_notebook_has_one_set_of_engines():
    sources = (
        "import warnings\nwarnings.simplefilter('ignore')\nfrom hpcdl.cluster import Cluster, current",
        "cluster = Cluster(n=2).start()",
        COUNT,
        "first = cluster\ncluster = Cluster(n=2).start()",
        COUNT,
        "print(first.stopped, current() is cluster, cluster.run(lambda comm: comm.rank))",
        "cluster.stop()\nprint(current())",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    texts = ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]
    assert texts[2] == texts[4]
    assert "Note: the 2 engines that were started before are stopped: a notebook has one set of them." in texts[3]
    assert texts[5] == "True True [0, 1]\n"
    assert texts[6] == "None\n"
