"""Training with a hand on it: what the file says is done; the dashboard's tests do the same on real engines."""

import threading
import time

from hpcdl.comm import simulate
from hpcdl.training.live import Hand, Settings, all_reduce_seconds, obey, train_live


def test_the_hands_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "hand.json"
    assert Hand.read(path) == Hand()
    Hand(True, 2, 3.5, 1).write(path)
    assert Hand.read(path) == Hand(True, 2, 3.5, 1)


def test_a_paused_rank_says_so_until_it_may_go_on(tmp_path):
    path, said = tmp_path / "hand.json", []
    Hand(paused=True).write(path)
    going_on = threading.Timer(0.35, Hand(slow_rank=1).write, [path])
    going_on.start()
    begin = time.monotonic()
    assert obey(path, 0, said.append) == Hand(slow_rank=1)
    assert time.monotonic() - begin >= 0.3
    assert len(said) >= 2
    assert all(record == {"paused": True} for record in said)


def test_a_kill_of_another_rank_is_not_obeyed(tmp_path):
    path = tmp_path / "hand.json"
    Hand(kill=3).write(path)
    assert obey(path, 2, print) == Hand(kill=3)


def test_engines_beyond_the_ranks_stand_by_and_the_others_report_each_step(tmp_path):
    records = []
    run = simulate(train_live, 3, Settings(ranks=2, batch=32, steps=2), str(tmp_path / "hand.json"), records.append)
    assert run.results == [None, None, None]  # no epoch was finished
    assert sorted(record["step"] for record in records) == [1, 1, 2, 2]
    assert {record["images"] for record in records} == {16}
    assert {event.rank for event in run.trace if event.op == "send"} == {0, 1}


def test_all_reduces_are_timed_by_the_machines_clock():
    run = simulate(all_reduce_seconds, 2, "ring", (4_000, 8_000), alpha=1.0, beta=0.001)
    assert run.results == [[2 + 4.0, 2 + 8.0]] * 2
