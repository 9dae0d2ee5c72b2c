"""LeNet on the digits over p ranks: it learns, reports, resumes to the bit, and says what is wrong."""

import math

import pytest
import torch

import hpcdl.training.train as training
from hpcdl.comm import Group, RankError, simulate
from hpcdl.data import Split, digits
from hpcdl.training import checkpoint
from hpcdl.training.momentum import Momentum
from hpcdl.training.train import train


def nothing(record):
    pass


def run(p, *args, reports=None, **options):
    """`train` on p simulated ranks; what each returned."""

    def rank(comm):
        with torch.random.fork_rng():
            report = nothing if reports is None else reports.setdefault(comm.rank, []).append
            return train(comm, report, *args, **options)

    return simulate(rank, p).results


@pytest.fixture
def few(monkeypatch):
    """30 digits to learn from and 10 held out: for what does not need to learn."""
    data = digits(size=28)
    some = Split(data.x[:30], data.y[:30], data.x_held_out[:10], data.y_held_out[:10])
    monkeypatch.setitem(training.DATA, "digits", lambda: some)


def test_ranks_learn_the_same_network_and_report_every_step():
    reports = {}
    first, second = run(2, 4, 64, reports=reports)
    assert first.fingerprint == second.fingerprint
    assert first.replicas == second.replicas == 2
    assert first.accuracy == second.accuracy > 0.7
    for records in reports.values():
        assert [record["epoch"] for record in records] == pytest.approx([(i + 1) / 23 for i in range(92)])
        assert all(record["loss"] > 0 and record["images_per_second"] > 0 for record in records)
    for one, other in zip(reports[0], reports[1], strict=True):
        n = one["images"] + other["images"]
        mean = (one["images"] * one["loss"] + other["images"] * other["loss"]) / n
        assert one["mean_loss"] == other["mean_loss"] == pytest.approx(mean)
    assert sum(record["images"] for records in reports.values() for record in records) == 4 * 1438


def test_a_record_says_where_the_seconds_of_a_step_went(few):
    def rank(comm):
        records = []

        def slow(step):
            comm.compute(2.0 if comm.rank == 1 else 0.0)  # before the step: the other rank waits

        train(comm, records.append, 1, 15, before_step=slow, bucket_mb=0.1)
        return records

    for rank_, records in enumerate(simulate(rank, 2, alpha=0.01, beta=1e-6).results):
        for record in records:
            assert record["total"] == pytest.approx(record["load"] + record["compute"] + record["wait"])
            # Two messages for each of four sums (three buckets, one in two pieces), one for what ranks tell each other.
            alone = 9 * 0.01 + (61_706 * 4 + 18 * 8) * 1e-6
            assert record["wait"] == pytest.approx(alone if rank_ == 1 else 2.0 + alone)
            names = [name for name, start, end in record["spans"] if 0 <= start <= end <= record["total"]]
            assert names == ["load", "forward", "backward", "wait", "update", "bucket 0", "bucket 1", "bucket 2"]
            buckets = [end - start for name, start, end in record["spans"] if name.startswith("bucket")]
            assert record["communicate"] == pytest.approx(sum(buckets))


def test_fewer_images_than_ranks_give_the_result_of_one_machine(few):
    accurate = {p: run(p, 2, 3, lr=0.01)[0] for p in (1, 5)}
    assert accurate[5].replicas == 5
    reports = {}
    run(5, 1, 3, reports=reports)
    assert math.isnan(reports[4][0]["loss"])
    assert reports[4][0]["images"] == 0
    alone = {}
    run(1, 1, 3, reports=alone)
    assert [r["mean_loss"] for r in reports[4]] == pytest.approx([r["mean_loss"] for r in alone[0]], rel=1e-4)


def test_some_of_the_ranks_can_train_without_the_others(few):
    def rank(comm):
        with torch.random.fork_rng():
            return train(Group(comm, range(2)), nothing, 1).replicas if comm.rank < 2 else None

    assert simulate(rank, 3).results == [2, 2, None]


def test_the_seed_decides_the_weights_to_the_last_bit(few):
    weights = [run(2, 1, 15, seed=seed)[0].fingerprint for seed in (1, 1, 2)]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize("stop", [3, 8])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(few, tmp_path, stop):
    """7 images a step: the last batch of an epoch has 2, which changes the weights' scale at the next one."""

    def stopping(step):
        if step == stop:
            raise KeyboardInterrupt

    undisturbed = {}
    expected = run(3, 3, 7, reports=undisturbed)[0]
    file = str(tmp_path / "state" / "lenet.pt")
    with pytest.raises(RankError, match="KeyboardInterrupt"):
        run(3, 3, 7, checkpoint=file, every=1, before_step=stopping)
    resumed = {}
    assert run(3, 3, 7, checkpoint=file, every=1, reports=resumed)[0].fingerprint == expected.fingerprint
    left = len(resumed[1])
    assert 15 - stop <= left <= 15 - stop + 1, "rank 0 may have been stopped before it saved the last step"
    assert [r["mean_loss"] for r in resumed[1]] == [r["mean_loss"] for r in undisturbed[1]][-left:]
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["lenet.pt"]


def test_a_finished_run_is_not_trained_again(few, tmp_path):
    file, reports = str(tmp_path / "lenet.pt"), {}
    expected = run(2, 1, 15, checkpoint=file, every=2)[0].fingerprint
    assert run(2, 1, 15, checkpoint=file, every=2, reports=reports)[0].fingerprint == expected
    assert reports == {0: [], 1: []} or not any(reports.values())


def test_a_checkpoint_of_another_run_is_refused(few, tmp_path):
    file = str(tmp_path / "lenet.pt")
    run(2, 1, 15, checkpoint=file, every=1)
    with pytest.raises(RankError, match=r"lenet.pt was written with batch=15, this run has 10; continue with the same"):
        run(2, 1, 10, checkpoint=file)


def test_a_save_that_is_cut_off_leaves_the_last_state(few, tmp_path, monkeypatch):
    file = tmp_path / "lenet.pt"
    run(1, 1, 15, checkpoint=str(file), every=1)
    before = file.read_bytes()

    def cut_off(state, to):
        to.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", cut_off)
    with pytest.raises(RankError, match="no space left"):
        run(1, 2, 15, checkpoint=str(file), every=1)
    assert file.read_bytes() == before


def test_nan_stops_every_rank_before_the_weights_are_spoilt(few):
    with pytest.raises(
        RankError, match=r"FloatingPointError: step 1: the mean loss of all ranks is nan.*smaller learn"
    ):
        run(2, 1, 15, lr=1e30)


def test_ranks_with_different_data_are_told(few, monkeypatch):
    everything = training.DATA["digits"]()
    turn = iter([everything, everything._replace(x=everything.x[:-1], y=everything.y[:-1])])
    monkeypatch.setitem(training.DATA, "digits", lambda: next(turn))
    said = "rank 1 has other data than rank 0: 29 images to learn from instead of 30 images.*give every rank"
    with pytest.raises(RankError, match=said):
        run(2, 1)


def test_ranks_with_different_settings_are_told(few):
    with pytest.raises(RankError, match=r"rank 1 has other settings than rank 0: lr=1\.0 instead of lr=0\.0"):
        simulate(lambda comm: train(comm, nothing, lr=float(comm.rank)), 2)


def test_an_unknown_data_set_is_refused_with_those_there_are():
    with pytest.raises(RankError, match="data is 'imagenet'; the data sets are digits, mnist, cifar10"):
        run(1, data="imagenet")


@pytest.mark.parametrize(("option", "value"), [("epochs", 0), ("epochs", -1), ("every", 0)])
def test_a_number_below_1_is_refused(option, value):
    with pytest.raises(RankError, match=f"{option} is {value}; it is a number of times, 1 or more"):
        run(2, **{option: value})


@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_in_lenets_size_with_mean_0_and_deviation_1(monkeypatch, channels):
    x = torch.rand(20, channels, 32, 32)
    monkeypatch.setitem(
        training.DATA, "cifar10", lambda: Split(x, torch.zeros(20).long(), x[:5], torch.zeros(5).long())
    )
    images = training.load("cifar10")
    assert images.x.shape == (20, channels, 28, 28)
    assert images.x_held_out.shape == (5, channels, 28, 28)
    assert images.x.mean().abs() < 0.02
    assert images.x.std() == pytest.approx(1, abs=0.02)


def test_momentum_is_that_of_torch():
    torch.manual_seed(0)
    mine, theirs = ([torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))] for _ in range(2))
    optimizers = Momentum(mine, 0.1, 0.8), torch.optim.SGD(theirs, lr=0.1, momentum=0.8)
    for step in range(5):
        for params, optimizer in zip((mine, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            params[0].grad = torch.arange(3.0) - step  # the second has none
            optimizer.step()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert mine[1].tolist() == [1.0, 1.0]


def test_momentum_takes_leaf_tensors_once():
    w = torch.nn.Parameter(torch.ones(3))
    for wrong, error, sentence in (
        (w, TypeError, "params is a tensor, whose rows would get no gradients"),
        ([w, torch.nn.Parameter(torch.ones(1)), w], ValueError, "params has a parameter twice"),
        ([w * 2], ValueError, "is computed from others"),
        ([{"params": [w]}], TypeError, "params has a dict"),
        ([("w", w)], TypeError, "params has a tuple"),
    ):
        with pytest.raises(error, match=sentence):
            Momentum(wrong, 0.1)
    assert Momentum([], 0.1).params == []
