"""Workers: one that dies, fails or is stuck is named with its shard, and nothing is left behind, however all ends."""

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from hpcdl.data.loader import Loader, PlainLoader, WorkerError

from .conftest import N


def failing(sample):
    if sample["y"] == 11:
        raise ZeroDivisionError("eleven")
    return sample


def ragged(sample):
    return {"x": np.zeros(3 if sample["y"] == 11 else 2)}


def sleepy(sample):
    if sample["y"]:
        time.sleep(0.3)
    return sample


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("loader-")]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("decode", "error"), [(failing, "ZeroDivisionError: eleven"), (ragged, r"shape \(3,\)")])
def test_a_batch_that_cannot_be_made_is_named(shards, decode, error):
    with (
        Loader(shards, 4, decode=decode) as loader,
        pytest.raises(WorkerError, match=rf"(?s)worker \d of the loader .*shard-00002, batch \d.*state_dict.*{error}"),
    ):
        list(loader)
    assert not loader_threads()
    with pytest.raises(RuntimeError, match=r"the loader is closed; .* state_dict"):
        loader.take()


def test_state_after_a_failure(shards):
    loader, had = Loader(shards, 4, decode=failing, queue=2), []
    with pytest.raises(WorkerError):
        had.extend(y for batch in loader for y in batch["y"].tolist())
    after = Loader(shards, 4)
    after.load_state_dict(loader.state_dict())
    assert sorted(had + [y for batch in after for y in batch["y"].tolist()]) == list(range(N))


def test_a_worker_that_is_stuck_is_named(shards):
    loader = Loader(shards, 4, decode=sleepy, patience=0.2)
    with pytest.raises(WorkerError, match=r"worker \d of the loader has made no batch for 0\.2 s.*shard-.*patience"):
        list(loader)


def test_threads_and_descriptors_are_gone_after_the_end_of_the_loader(shards):
    before = descriptors()
    for end in (Loader.close, lambda loader: None):
        loader = Loader(shards, 4)
        loader.take()
        end(loader)
        del loader
        gc.collect()
        assert not loader_threads()
        assert descriptors() == before


def named_memory(pid: int | str = "self") -> set[str]:
    """The files with a name in shared memory that a process has mapped; other programs' come and go."""
    return set(re.findall(r"/dev/shm/\S+", Path(f"/proc/{pid}/maps").read_text()))


def alive(pids) -> list[int]:
    deadline = time.monotonic() + 10
    while (left := [pid for pid in pids if psutil.pid_exists(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def until_busy(loader, worker: int) -> None:
    """Take batches until this worker, which may start later than the other, is at work in a shard."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        slots = [slot for slot, _ in loader._crew.busy.values()]
        if any(loader._crew._notes(slot)[:2].tolist() in ([worker, shard] for shard in range(5)) for slot in slots):
            return
        if loader._crew.poll.poll(10):  # ms; one is done
            loader.take()


@pytest.mark.labs  # five loaders whose workers are processes, which import torch
def test_processes_do_what_threads_do_and_one_that_is_killed_is_named(shards, tmp_path, monkeypatch):
    """A random.py in the folder does not keep them from starting."""
    (tmp_path / "random.py").write_text("")
    monkeypatch.chdir(tmp_path)
    before, named = descriptors(), named_memory()
    with Loader(shards, 4, decode=sleepy, kind="process", workers=2, queue=2) as loader:
        assert loader.take()["y"].tolist() == next(iter(PlainLoader(shards, 4)))["y"].tolist()
        processes = loader._crew.processes
        assert named_memory() <= named
        assert not any(named_memory(process.pid) for process in processes.values())
        until_busy(loader, worker=1)
        begin = time.monotonic()
        processes[1].send_signal(signal.SIGKILL)
        with pytest.raises(
            WorkerError,
            match=rf"worker 1 of the loader \(process {processes[1].pid}\) was ended by SIGKILL in .*shard-.*memory.*"
            "state_dict",
        ):
            list(loader)
        assert time.monotonic() - begin < 5
    assert not alive(process.pid for process in processes.values())
    del loader
    gc.collect()
    assert descriptors() == before

    with (
        pytest.raises(WorkerError, match=r"(?s)shard-00002.*ZeroDivisionError: eleven"),
        Loader(shards, 4, decode=failing, kind="process") as loader,
    ):
        list(loader)

    loader = Loader(shards, 4, kind="process")  # collected
    loader.take()
    pids = [process.pid for process in loader._crew.processes.values()]
    del loader
    gc.collect()
    assert not alive(pids)
    assert descriptors() == before


PROGRAM = """
import sys, time
from hpcdl.data.loader import Loader, Shards
loader = Loader(Shards(sys.argv[1]), 4, kind="process")
loader.take()
print(*[process.pid for process in loader._crew.processes.values()], flush=True)
time.sleep(60)
"""


@pytest.mark.labs  # starts three programs with workers
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM], ids=lambda end: end.name)
def test_workers_end_with_their_training_however_it_ends(shards, end):
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(shards.folder)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as training:
        pids = list(map(int, training.stdout.readline().split()))
        assert len(pids) == 2
        assert not any(map(named_memory, [training.pid, *pids]))  # so none can be left behind
        training.send_signal(end)
        training.wait(20)
    assert not alive(pids)


def test_no_name_in_dev_shm_is_ever_taken(shards):
    named = named_memory()
    with Loader(shards, 4) as loader:
        loader.take()
        assert named_memory() <= named
    assert Path(f"/proc/self/fd/{loader._slots.descriptor}").exists()
