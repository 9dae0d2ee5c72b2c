"""Samples that `decode` makes unlike: both loaders refuse them, and neither rounds or cuts a number."""

import numpy as np
import pytest
import torch

from hpcdl.data.loader import Loader, PlainLoader, Shards, WorkerError, write_shards

LOADERS = pytest.mark.parametrize("load", [PlainLoader, Loader], ids=["plain", "fast"])


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder / "ten", ({"x": np.int64(i)} for i in range(10)), per_shard=3)
    return Shards(folder / "ten")


def batches(load, shards, decode, batch=4):
    loader = load(shards, batch, decode=decode)
    try:
        return list(loader)
    finally:
        getattr(loader, "close", lambda: None)()


UNLIKE = {  # what even and odd samples become
    "an int, a float": (3, 0.5),
    "a float, an int": (0.5, 3),
    "a bool, an int": (True, 5),
    "two sizes of floats": (np.float32(1), 0.1),
    "two sizes of ints": (np.uint8(3), np.int64(300)),
    "two shapes": (np.zeros(3), np.zeros(2)),
    "a shape that fits": (np.zeros(3), np.zeros(1)),
    "tensors of two dtypes": (torch.ones(2), torch.ones(2, dtype=torch.int64)),
}


@LOADERS
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("values", UNLIKE.values(), ids=UNLIKE)
def test_samples_of_two_kinds(load, values, batch, shards):
    with pytest.raises(
        (ValueError, WorkerError), match=r"decode made v of .* from sample \d, and .* from another; all"
    ):
        batches(load, shards, lambda sample: {"v": values[sample["x"] % 2]}, batch)


@LOADERS
@pytest.mark.parametrize("odd", [{"v": 1, "w": 2}, {}, {"w": 1}, 7, None, [1]])
def test_other_fields(load, odd, shards):
    with pytest.raises((ValueError, WorkerError, TypeError), match=r"decode made .* from sample|a sample is a"):
        batches(load, shards, lambda sample: odd if sample["x"] % 2 else {"v": 1})


@LOADERS
@pytest.mark.parametrize("value", [b"12", b"", b"ab"])
def test_bytes_are_no_number(load, value, shards, tmp_path):
    with pytest.raises(ValueError, match="v is bytes of any length, and a batch needs one shape"):
        batches(load, shards, lambda _: {"v": value})
    write_shards(tmp_path / "bytes", [{"v": value}] * 3)
    with pytest.raises(ValueError, match="v is bytes of any length, and a batch needs one shape"):
        batches(load, Shards(tmp_path / "bytes"), None)


@LOADERS
@pytest.mark.parametrize("value", [[[1], [2, 3]], torch.ones(2, requires_grad=True), torch.ones(2).bfloat16(), "text"])
def test_values_without_an_array(load, value, shards, tmp_path):
    with pytest.raises(TypeError, match=r"v is .*(which NumPy cannot make into an array|has arrays, numbers or bytes)"):
        batches(load, shards, lambda _: {"v": value})
    with pytest.raises(TypeError, match=r"v is .*(which NumPy cannot make into an array|has arrays, numbers or bytes)"):
        write_shards(tmp_path / "none", [{"v": value}])


@pytest.mark.parametrize("sample", [1, (1, 2), None])
def test_samples_that_are_no_dict(sample, tmp_path):
    for samples in ([sample], [{"x": 1}, sample]):
        with pytest.raises(TypeError, match=r"a sample is a .*; it is a dict of arrays, numbers or bytes"):
            write_shards(tmp_path / "none", samples)


@LOADERS
def test_no_fields(load, shards):
    with pytest.raises(ValueError, match="the sample has no fields; decode returns a dict"):
        batches(load, shards, lambda _: {})


@LOADERS
def test_arrays_of_other_layouts_are_alike(load, shards):
    def decode(sample):
        whole = np.full((2, 3), sample["x"], np.float32)
        forms = [whole, whole.astype(">f4"), np.asfortranarray(whole), torch.from_numpy(whole), whole.tolist()]
        return {"v": forms[sample["x"] % 4]}

    found = torch.cat([batch["v"] for batch in batches(load, shards, decode)])
    assert found.dtype == torch.float32
    assert sorted(found[:, 1, 2].tolist()) == list(range(10))
