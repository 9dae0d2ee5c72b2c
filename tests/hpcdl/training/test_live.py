"""Training under live control: ranks follow the commands in the file; the dashboard's tests do so on real engines."""

import threading
import time

from hpcdl.comm import simulate
from hpcdl.training.live import LiveCommands, Settings, all_reduce_seconds, follow_commands, train_live


def test_commands_file_round_trips(tmp_path):
    path = tmp_path / "commands.json"
    assert LiveCommands.read(path) == LiveCommands()
    LiveCommands(True, 2, 3.5, 1).write(path)
    assert LiveCommands.read(path) == LiveCommands(True, 2, 3.5, 1)


def test_paused_rank_reports_until_it_may_continue(tmp_path):
    path, said = tmp_path / "commands.json", []
    LiveCommands(paused=True).write(path)
    resuming = threading.Timer(0.35, LiveCommands(slow_rank=1).write, [path])
    resuming.start()
    begin = time.monotonic()
    assert follow_commands(path, 0, said.append) == LiveCommands(slow_rank=1)
    assert time.monotonic() - begin >= 0.3
    assert len(said) >= 2
    assert all(record == {"paused": True} for record in said)


def test_kill_of_another_rank_is_ignored(tmp_path):
    path = tmp_path / "commands.json"
    LiveCommands(kill=3).write(path)
    assert follow_commands(path, 2, print) == LiveCommands(kill=3)


def test_extra_engines_stay_idle_and_others_report(tmp_path):
    records = []
    run = simulate(train_live, 3, Settings(ranks=2, batch=32, steps=2), str(tmp_path / "commands.json"), records.append)
    assert run.results == [None, None, None]  # no epoch was finished
    assert sorted(record["step"] for record in records) == [1, 1, 2, 2]
    assert {record["images"] for record in records} == {16}
    assert {event.rank for event in run.trace if event.op == "send"} == {0, 1}


def test_all_reduces_are_timed_by_the_machine_clock():
    run = simulate(all_reduce_seconds, 2, "ring", (4_000, 8_000), alpha=1.0, beta=0.001)
    assert run.results == [[2 + 4.0, 2 + 8.0]] * 2
