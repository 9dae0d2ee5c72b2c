"""Where a loader stands: states loaded in the middle, several loops and threads, forked processes, and copies."""

import pickle
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from hpcdl.data.loader import Loader, PlainLoader, WorkerError

from .conftest import N

LOADERS = pytest.mark.parametrize("load", [PlainLoader, Loader], ids=["plain", "fast"])


@LOADERS
def test_a_state_loaded_in_a_running_loop(load, shards):
    loader, seen = load(shards, 5), []
    for number, batch in enumerate(loader):
        seen.append(batch["y"].tolist())
        if number == 1:
            state = loader.state_dict()
        if number == 3:
            loader.load_state_dict(state)
    assert seen[4:6] == seen[2:4]
    assert seen[:2] + seen[4:] == [batch["y"].tolist() for batch in load(shards, 5)]


@LOADERS
def test_two_loops_share_the_position(load, shards):
    loader = load(shards, 1)
    first, second = iter(loader), iter(loader)
    seen = [next(loop)["y"].item() for _ in range(N // 2) for loop in (first, second)]
    assert seen == [batch["y"].item() for batch in load(shards, 1)][: len(seen)]


def test_plain_tries_a_failed_batch_again(shards):
    broken = [True]

    def decode(sample):
        if broken and sample["y"] == 3:
            raise OSError(broken.pop())
        return sample

    loader, seen = PlainLoader(shards, 2, decode=decode), []
    with pytest.raises(OSError, match="True"):
        seen.extend(batch["y"].tolist() for batch in loader)
    seen.extend(batch["y"].tolist() for batch in loader)
    assert seen == [batch["y"].tolist() for batch in PlainLoader(shards, 2)]


@LOADERS
@pytest.mark.parametrize(
    "wrong", [{"epoch": 0.5}, {"seen": 2.5}, {"seed": None}, {"seed": "5"}, {"seen": -1}, {"samples": 3}, {"seen": N}]
)
def test_states_of_something_else(load, wrong, shards):
    loader = load(shards, 5)
    for state in ({**loader.state_dict(), **wrong}, {}, None):
        with pytest.raises(ValueError, match="the state is"):
            loader.load_state_dict(state)
    assert loader.state_dict() == load(shards, 5).state_dict()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_decoder_that_exits_is_named_at_once(error, shards):
    def decode(sample):
        if sample["y"] == 3:
            raise error
        return sample

    with Loader(shards, 4, decode=decode) as loader, pytest.raises(WorkerError, match=type(error).__name__):
        list(loader)


def test_threads_take_each_batch_once(shards):
    seen, errors = [], []
    with Loader(shards, 1) as loader:

        def take():
            try:
                seen.extend(loader.take()["y"].item() for _ in range(N // 4))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = [loader_batch["y"].item() for loader_batch in PlainLoader(shards, 1)]
    assert not errors
    assert sorted(seen) == sorted(expected[: len(seen)])


def test_a_forked_process_leaves_the_loader_alone(shards):
    program = f"""
        import os
        from hpcdl.data.loader import Loader, PlainLoader, Shards

        shards = Shards({str(shards.folder)!r})
        loader = Loader(shards, 3, workers=1, queue=6)
        seen = [loader.take()["y"].tolist()]
        if not (child := os.fork()):
            for use in (loader.take, lambda: loader.load_state_dict(loader.state_dict())):
                try:
                    use()
                except RuntimeError as error:
                    print(error, flush=True)
            loader.close()
            loader._crew.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert seen + [b["y"].tolist() for b in loader] == [b["y"].tolist() for b in PlainLoader(shards, 3)]
        print("the same", flush=True)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("from which this one was forked") == 2
    assert done.stdout.endswith("the same\n")


def test_shards_travel_as_their_folder(shards):
    copied = pickle.loads(pickle.dumps(shards))
    assert copied.folder == shards.folder
    assert copied[3]["y"] == shards[3]["y"]


@pytest.mark.parametrize("numbers", [[-1], [0, N], [-N]])
def test_take_of_samples_that_are_not_there(numbers, shards):
    out = {"y": np.zeros(len(numbers), shards[0]["y"].dtype)}
    with pytest.raises(IndexError, match="they are numbered from 0"):
        shards.take(np.array(numbers), out)
