"""The loader: every sample once an epoch on any number of ranks, resumed anywhere, and no more ahead than its bound."""

import gc
import time
from itertools import chain

import numpy as np
import pytest
import torch

from hpcdl.data.loader import Loader, PlainLoader, Shards, write_shards
from hpcdl.ddp import ShardedSampler

from .conftest import N

BATCHES = (4, 7, 23, 50)


def fast(shards, batch, rank=0, size=1, **options):
    return Loader(shards, batch, rank, size, **options)


LOADERS = {"plain": PlainLoader, "fast": fast}


def double(sample):
    return {"twice": sample["x"].astype(np.float32) * 2, "y": sample["y"]}


def epoch_of(ranks) -> list[int]:
    """The samples of one epoch, all ranks side by side."""
    return [y for step in zip(*ranks, strict=True) for batch in step for y in batch["y"].tolist()]


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("p", range(1, 6))
def test_every_sample_comes_once_an_epoch(shards, p, make):
    for batch in BATCHES:
        ranks = [make(shards, batch, rank, p) for rank in range(p)]
        first, second = (epoch_of(ranks) for _ in range(2))
        assert sorted(first) == sorted(second) == list(range(N))
        assert first != second


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_len_counts_batches_of_an_epoch(shards, make):
    for batch in BATCHES:
        loader = make(shards, batch, 1, 3)
        assert len(loader) == -(-N // batch)
        assert len(list(loader)) == len(loader)


@pytest.mark.parametrize("decode", [None, double], ids=["as it is", "decoded"])
def test_fast_gives_what_plain_gives_to_the_bit(shards, decode):
    for p, batch in ((1, 4), (3, 7), (5, 4)):
        for rank in range(p):
            plain = PlainLoader(shards, batch, rank, p, decode=decode, seed=3)
            with Loader(shards, batch, rank, p, decode=decode, seed=3) as loader:
                for ours, theirs in zip(loader, plain, strict=True):
                    assert ours.keys() == theirs.keys()
                    for name in ours:
                        assert ours[name].dtype == theirs[name].dtype
                        assert torch.equal(ours[name], theirs[name])


def test_the_order_is_that_of_the_sampler(shards):
    for rank in range(3):
        sampler = ShardedSampler(N, 7, rank, 3, seed=5)
        loader = PlainLoader(shards, 7, rank, 3, seed=5)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            assert [batch["y"].tolist() for batch in loader] == list(sampler)


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_an_epoch_goes_on_at_each_place_on_another_number_of_ranks(shards, make):
    before = [PlainLoader(shards, 4, rank, 2) for rank in range(2)]
    for epoch in range(2):
        had: list[int] = []
        for step in zip(*before, strict=True):
            had += [y for batch in step for y in batch["y"].tolist()]
            states = [rank.state_dict() for rank in before]
            assert states[0] == states[1]
            left = epoch_rest(shards, states[0], make, p=len(had) % 5 + 1, epoch=epoch)
            assert sorted(had + left) == list(range(N)), states[0]


def epoch_rest(shards, state, make, p: int, epoch: int) -> list[int]:
    """What comes in the rest of `epoch`, on p ranks in batches of 6."""
    if state["epoch"] > epoch:
        return []
    ranks = [make(shards, 6, rank, p) for rank in range(p)]
    for rank in ranks:
        rank.load_state_dict(state)
    return epoch_of(ranks)


def test_state_counts_only_taken_batches(shards):
    with Loader(shards, 4, queue=3) as loader:
        loader.take()
        assert loader.ahead == 3
        assert loader.state_dict() == {"samples": N, "seed": 0, "epoch": 0, "seen": 4}
        second = loader.take()["y"].tolist()
        state = loader.state_dict()
        third = loader.take()["y"].tolist()
        loader.load_state_dict({**state, "seen": 4})
        assert loader.take()["y"].tolist() == second
        assert loader.take()["y"].tolist() == third


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_a_state_of_other_data_is_refused(shards, make):
    loader = make(shards, 4)
    for change in ({"samples": N + 1}, {"seen": N}, {"seen": -1}, {"epoch": -1}):
        with pytest.raises(ValueError, match="it is of other data"):
            loader.load_state_dict(loader.state_dict() | change)


def test_a_training_that_is_slow_stops_its_workers(shards):
    loaded = []

    def decode(sample):
        loaded.append(int(sample["y"]))
        return sample

    queue, batch = 3, 2
    with Loader(shards, batch, decode=decode, queue=queue, workers=2) as loader:
        for step in range(1, 8):
            loader.take()
            time.sleep(0.02)  # workers have all the time they want
            assert loader.ahead == queue
            assert len(loaded) <= 1 + batch * (step + queue)  # 1: what `decode` makes of sample 0 is looked at
    assert loader.nbytes == (queue + 2) * loader._slots.layout.nbytes


def test_memory_does_not_grow_and_kept_batches_stay_what_they_were(shards):
    with Loader(shards, 4, queue=2) as loader:
        expected = [batch["y"].tolist() for batch in PlainLoader(shards, 4)]
        kept = list(loader)
        assert [batch["y"].tolist() for batch in kept] == expected
        assert loader._slots.lent == 2  # the others are copies
        again = [batch["y"].tolist() for batch in loader]
        assert sorted(chain.from_iterable(again)) == list(range(N))
        assert [batch["y"].tolist() for batch in kept] == expected
        del kept
        gc.collect()
        assert loader._slots.lent == 0
        assert len(loader._slots.free) + loader.ahead == loader._slots.count


def test_a_batch_outlives_its_loader(shards):
    loader = Loader(shards, 4)
    batch = loader.take()
    expected = batch["y"].tolist()
    loader.close()
    del loader
    gc.collect()
    assert batch["y"].tolist() == expected


def test_a_training_slower_than_its_input_does_not_wait(tmp_path):
    write_shards(tmp_path, ({"x": np.zeros(1000, np.float32)} for _ in range(256)))
    with Loader(Shards(tmp_path), 8, workers=1, queue=4) as loader:
        for _ in loader:
            deadline = time.perf_counter() + 0.005  # computes
            while time.perf_counter() < deadline:
                torch.ones(100, 100) @ torch.ones(100, 100)
    waited = sorted(timed.waited for timed in list(loader.timed)[1:])
    assert waited[len(waited) // 2] < 0.0005  # all but what a busy machine does


def test_an_epoch_that_was_left_goes_on(shards):
    with Loader(shards, 4) as loader:
        had = []
        for batch in loader:
            had += batch["y"].tolist()
            if len(had) == 12:
                break
        had += [y for batch in loader for y in batch["y"].tolist()]
        assert sorted(had) == list(range(N))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch 0"),
        ({"rank": 2, "size": 2}, "rank 2, size 2"),
        ({"workers": 0}, "workers is 0"),
        ({"queue": 0}, "queue 0"),
        ({"kind": "fibre"}, "kind 'fibre'; .* one of thread, process"),
    ],
)
def test_numbers_that_make_no_loader_are_refused(shards, options, message):
    with pytest.raises(ValueError, match=message):
        Loader(shards, **{"batch": 4, **options})


def test_bytes_of_any_length_need_a_decoder(tmp_path):
    write_shards(tmp_path, ({"text": b"a" * i} for i in range(9)))
    shards = Shards(tmp_path)
    with pytest.raises(ValueError, match=r"text is bytes of any length.*`decode`"):
        Loader(shards, 4)

    def length(sample):
        return {"length": np.int64(len(sample["text"]))}

    with Loader(shards, 4, decode=length) as loader:
        assert sorted(n for batch in loader for n in batch["length"].tolist()) == list(range(9))
