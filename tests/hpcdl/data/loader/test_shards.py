"""Shards: what is read is what was written, or an error says which file is damaged and what to do."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from hpcdl.data.loader import Loader, PlainLoader, Shards, write_shards
from hpcdl.data.loader.shard import BLOCK

from .conftest import N, sample


def test_every_sample_is_what_was_written(shards):
    assert len(shards) == N
    assert [each.count for each in shards.shards] == [5, 5, 5, 5, 3]
    for i in range(N):
        assert shards[i]["y"] == i
        assert shards[i]["x"].tolist() == sample(i)["x"].tolist()
        assert shards.shard_of(i) == i // 5
    shards.verify()


@pytest.mark.parametrize("side", [3, 80], ids=["small", "large"])  # two ways of copying
def test_take_puts_samples_where_they_belong(tmp_path, side):
    write_shards(tmp_path, ({"x": np.full((side, side), i, np.float32), "y": i} for i in range(N)), per_shard=7)
    indices = np.random.default_rng(0).permutation(N)
    out = {"x": np.zeros((N, side, side), np.float32), "y": np.zeros(N, np.int64)}
    Shards(tmp_path).take(indices, out)
    assert (out["y"] == indices).all()
    assert (out["x"] == indices[:, None, None]).all()


def test_bytes_of_any_length_are_samples_too(tmp_path):
    texts = [b"", b"one", b"two" * 100_000, b"", b"4"]
    write_shards(tmp_path, ({"text": text, "y": np.float32(k)} for k, text in enumerate(texts)), per_shard=3)
    shards = Shards(tmp_path)
    assert [shards[i]["text"] for i in range(5)] == texts
    assert [float(shards[i]["y"]) for i in range(5)] == [0, 1, 2, 3, 4]


def test_a_flipped_bit_is_found_in_the_sample_that_has_it_and_in_no_other(tmp_path):
    count = 4 * BLOCK // 1000
    write_shards(tmp_path, ({"x": np.full(1000, i % 200, np.uint8)} for i in range(count)), per_shard=count)
    path = tmp_path / "shard-00000"
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"\n") + 1 + 2 * BLOCK + 5] ^= 4  # in the third block
    path.write_bytes(raw)
    shards, out = Shards(tmp_path), {"x": np.zeros((1, 1000), np.uint8)}
    shards.take(np.array([0]), out)
    bad = (2 * BLOCK + 5) // 1000
    for read in (lambda: shards.take(np.array([bad]), out), lambda: shards[bad], shards.verify):
        with pytest.raises(ValueError, match=r"shard-00000 is damaged: the checksum of block 2 differs; .*restore"):
            read()


@pytest.mark.parametrize("at", [3, -3], ids=["header", "table"])
def test_a_damaged_header_or_table_is_found_when_the_shards_are_opened(shards, at):
    path = shards.folder / "shard-00001"
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="shard-00001"):
        Shards(shards.folder)


def test_a_file_that_is_shorter_or_missing_is_named(shards):
    path = shards.folder / "shard-00002"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"shard-00002 is damaged: it has \d+ bytes, and \d+ were written"):
        Shards(shards.folder)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="shard-00002"):
        Shards(shards.folder)


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    def breaks():
        yield from map(sample, range(7))
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="gone"):
        write_shards(tmp_path, breaks(), per_shard=3)
    with pytest.raises(FileNotFoundError, match=r"shards\.json; write_shards"):
        Shards(tmp_path)
    assert write_shards(tmp_path, map(sample, range(7)), per_shard=3) == 7  # and once more
    assert len(Shards(tmp_path)) == 7
    with pytest.raises(FileExistsError, match="holds shards already"):
        write_shards(tmp_path, map(sample, range(7)))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": np.zeros((2, 3), np.float32), "y": 1}, r"x = float32 of shape \(2, 3\); the first one has uint8"),
        ({"x": np.zeros((3, 2), np.uint8), "y": 1}, r"x = uint8 of shape \(3, 2\)"),
        ({"x": np.zeros((2, 3), np.uint8)}, "y = nothing; the first one has int64"),
        ({"x": b"abc", "y": 1}, "x = bytes"),
        ({"x": np.zeros((2, 3), np.uint8), "y": 1, "z": 2}, "z, which the first one has not; it has x, y"),
    ],
)
def test_samples_unlike_the_first_are_refused(tmp_path, second, message):
    with pytest.raises(ValueError, match=message):
        write_shards(tmp_path, [sample(0), second])


def test_what_is_no_sample_is_refused(tmp_path):
    with pytest.raises(TypeError, match="x is str; a sample has arrays, numbers or bytes"):
        write_shards(tmp_path, [{"x": "text"}])
    with pytest.raises(ValueError, match="no sample to write"):
        write_shards(tmp_path, [])
    with pytest.raises(ValueError, match="per_shard is 0"):
        write_shards(tmp_path, [sample(0)], per_shard=0)


def test_a_sample_that_is_not_there_is_an_index_error(shards):
    for i in (-1, N):
        with pytest.raises(IndexError, match=f"sample {i} of {N}"):
            shards[i]


def test_a_folder_may_be_moved(shards, tmp_path):
    shutil.move(shards.folder, tmp_path / "elsewhere")
    assert Shards(tmp_path / "elsewhere")[7]["y"] == 7


@pytest.mark.parametrize(
    "manifest",
    ["", "[]", "{}", "nothing", "3", '{"fields": [["x"]], "shards": []}', '{"fields": [], "shards": [{}]}', "½"],
)
def test_a_damaged_manifest_is_said(shards, manifest):
    (shards.folder / "shards.json").write_text(manifest, encoding="latin-1")
    with pytest.raises(ValueError, match=r"shards.json is damaged: it is no manifest of shards .*; write the"):
        Shards(shards.folder)


def test_a_manifest_without_files_is_damaged(shards):
    (shards.folder / "shards.json").write_text('{"fields": [], "shards": []}')
    with pytest.raises(ValueError, match="it names no file"):
        Shards(shards.folder)


@pytest.mark.parametrize("kind", [PlainLoader, Loader])
@pytest.mark.parametrize("path", [str, Path])
def test_a_loader_opens_a_folder(shards, kind, path):
    expected = [batch["y"].tolist() for batch in PlainLoader(shards, 4)]
    assert [batch["y"].tolist() for batch in kind(path(shards.folder), 4)] == expected
