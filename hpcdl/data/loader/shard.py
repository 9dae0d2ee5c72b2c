"""One file of samples: a line of JSON that says what follows, the fields one after another, and checksums.

    {"count": 100, "fields": [{"name": "x", "dtype": "|u1", "shape": [28, 28], "offset": 0}, ...], ...}
    x of all samples                   an array of (100, 28, 28), from a multiple of 64 bytes on
    y of all samples
    CRC-32 of each 256 KiB of that     four bytes each

A field with byte strings of any length has no shape; the samples' offsets come first. The file is mapped into memory:
nothing is copied until a batch is assembled. A block is compared with its checksum when one of its samples is first
read.
"""

import json
import mmap
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hpcdl.files import written_whole

ALIGN, BLOCK = 64, 1 << 18  # bytes

Sample = dict[str, Any]  # by field: an array, a number, or bytes


class Field(NamedTuple):
    """What each sample has under `name`: an array of `dtype` and `shape`, or, with shape None, bytes of any length."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None

    @property
    def nbytes(self) -> int:
        """Bytes of one sample's."""
        return int(np.prod(self.shape or ())) * np.dtype(self.dtype).itemsize


def fields_of(sample: Sample) -> list[Field]:
    """Return the fields of a sample, by name. Raises TypeError for what is no dict of numbers or bytes."""
    return [field_of(name, value) for name, value in require_dict(sample).items()]


def require_dict(sample: Sample) -> Sample:
    """Return `sample` if it is a dict; otherwise raise TypeError."""
    if not isinstance(sample, dict):
        raise TypeError(f"a sample is a {type(sample).__name__}; it is a dict of arrays, numbers or bytes by name")
    return sample


def field_of(name: str, value: Any) -> Field:
    """Return what a sample has under `name`. Raises TypeError for what is neither numbers nor bytes."""
    if isinstance(value, bytes):
        return Field(name, "|u1", None)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # a ragged list, a tensor that NumPy cannot read
        raise TypeError(f"{name} is {type(value).__name__}, which NumPy cannot make into an array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} is {type(value).__name__}; a sample has arrays, numbers or bytes under its names")
    return Field(name, array.dtype.newbyteorder("<").str, array.shape)


def write(path: Path, fields: Sequence[Field], samples: Sequence[Sample]) -> dict[str, Any]:
    """Write `samples`, whole or not at all; returns what a manifest keeps of the file.

    Raises ValueError where a sample has other fields.
    """
    names = {field.name for field in fields}
    for sample in samples:
        if more := sorted(require_dict(sample).keys() - names):
            raise ValueError(f"a sample has {more[0]}, which the first one has not; it has {', '.join(sorted(names))}")
    arrays = [array for field in fields for array in _columns(field, samples)]
    offsets, end = [], 0
    for array in arrays:
        offsets.append(end)
        end += -(-array.nbytes // ALIGN) * ALIGN
    data = bytearray(end)
    for array, offset in zip(arrays, offsets, strict=True):
        data[offset : offset + array.nbytes] = array.tobytes()
    table = np.array([zlib.crc32(data[at : at + BLOCK]) for at in range(0, end, BLOCK)], dtype="<u4").tobytes()
    about = {"count": len(samples), "fields": fields, "offsets": offsets, "block": BLOCK}
    line = json.dumps(about).encode()
    header = line.ljust(-(-(len(line) + 1) // ALIGN) * ALIGN - 1) + b"\n"
    with written_whole(path, "wb") as file:
        for part in (header, data, table):
            file.write(part)
    size, checksum = len(header) + len(data) + len(table), zlib.crc32(table, zlib.crc32(header))
    return {"name": path.name, "count": len(samples), "bytes": size, "table": len(table), "checksum": checksum}


def _columns(field: Field, samples: Sequence[Sample]) -> list[np.ndarray]:
    """Return a field of all samples: one array, or where each sample begins, and all bytes."""
    values = [sample.get(field.name) for sample in samples]
    texts = [value for value in values if isinstance(value, bytes)]
    if field.shape is None and len(texts) == len(values):
        lengths = [0, *map(len, texts)]
        return [np.cumsum(lengths, dtype="<i8"), np.frombuffer(b"".join(texts), np.uint8)]
    for value in values:
        if value is None or field_of(field.name, value) != field:
            raise ValueError(f"a sample has {field.name} = {_shown(value)}; the first one has {about(field)}")
    return [np.array(values, dtype=field.dtype)]


def about(field: Field) -> str:
    """Describe a field's dtype and shape in an error."""
    return "bytes" if field.shape is None else f"{np.dtype(field.dtype).name} of shape {tuple(field.shape)}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else about(field_of("", value))


class ShardFile:
    """An open shard: `take` copies samples of a field, `sample` gives one whole."""

    def __init__(self, path: Path, about: dict[str, Any]):
        self.path = path
        memory = _mapped(path, about)
        begin, end = memory.find(b"\n") + 1, len(memory) - about["table"]
        table = memory[end:]
        if zlib.crc32(table, zlib.crc32(memory[:begin])) != about["checksum"]:
            raise damaged(path, "its header or its table of checksums differs")
        header = json.loads(memory[:begin])
        self.count, self.block = header["count"], header["block"]
        self._raw = memoryview(memory)[begin:end]
        self._data = np.frombuffer(self._raw, np.uint8)
        self._checksums = np.frombuffer(table, "<u4")
        self._unread = np.ones(len(self._checksums), dtype=bool)
        self._left = len(self._checksums)  # blocks that were not compared yet
        self._place(header)

    def take(self, name: str, rows: np.ndarray, out: np.ndarray, where: np.ndarray) -> None:
        """Copy a field of samples `rows` to the places `where` of `out`."""
        source, nbytes = self.arrays[name], self._nbytes[name]
        if self._left:
            self._compare(self._starts[name] + rows * nbytes, nbytes)
        if nbytes < 4096:
            out[where] = source[rows]
        else:  # directly to its place: for a large sample a loop step is cheaper than another copy
            for place, row in zip(where.tolist(), rows.tolist(), strict=True):
                out[place] = source[row]

    def sample(self, row: int) -> Sample:
        """One sample, each field as it was written; arrays are the file's own memory, and cannot be written to."""
        return {name: self._value(name, row) for name in self.arrays}

    def verify(self) -> None:
        """Compare all of it with its checksums; raises ValueError where it is damaged."""
        self._unread[:], self._left = True, len(self._unread)
        self._compare(np.zeros(1, dtype=np.int64), len(self._data))

    def _value(self, name: str, row: int) -> Any:
        source, at = self.arrays[name], self._starts[name]
        begins = self._begins.get(name)
        if begins is None:
            self._compare(np.array([at + row * self._nbytes[name]]), self._nbytes[name])
            return source[row]
        self._compare(np.array([self._index_starts[name] + 8 * row]), 16)
        first, last = begins[row : row + 2].tolist()
        self._compare(np.array([at + first]), last - first)
        return source[first:last].tobytes()

    def _place(self, header: dict[str, Any]) -> None:
        """Where each field lies."""
        offsets = iter(header["offsets"])
        self.arrays: dict[str, np.ndarray] = {}
        self._starts, self._nbytes, self._begins, self._index_starts = {}, {}, {}, {}
        for field in (Field(*entry) for entry in header["fields"]):
            if field.shape is None:
                self._index_starts[field.name] = next(offsets)
                self._compare(np.array([self._index_starts[field.name] + 8 * self.count]), 8)
                self._begins[field.name] = self._array("<i8", (self.count + 1,), self._index_starts[field.name])
                shape: tuple[int, ...] = (int(self._begins[field.name][-1]),)
            else:
                shape = (self.count, *field.shape)
            self._starts[field.name], self._nbytes[field.name] = next(offsets), field.nbytes
            self.arrays[field.name] = self._array(field.dtype, shape, self._starts[field.name])

    def _array(self, dtype: str, shape: tuple[int, ...], offset: int) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._data[offset : offset + size].view(dtype).reshape(shape)

    def _compare(self, starts: np.ndarray, nbytes: int) -> None:
        """Compare the blocks that hold `nbytes` from each of `starts` on, if that was not done before."""
        if not self._left or not nbytes:
            return
        firsts, lasts = starts // self.block, (starts + nbytes - 1) // self.block
        steps = np.arange(int((lasts - firsts).max()) + 1)
        blocks = np.unique(np.minimum(firsts[:, None] + steps, lasts[:, None]))
        for block in blocks[self._unread[blocks]].tolist():
            if zlib.crc32(self._raw[block * self.block : (block + 1) * self.block]) != self._checksums[block]:
                raise damaged(self.path, f"the checksum of block {block} differs")
            self._unread[block] = False
        self._left = int(np.count_nonzero(self._unread))  # counted: several threads may have compared a block at once


def damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged: {why}; write the shards again, or restore the file")


def _mapped(path: Path, about: dict[str, Any]) -> mmap.mmap:
    with path.open("rb") as file:
        size = path.stat().st_size
        if size != about["bytes"]:
            raise damaged(path, f"it has {size} bytes, and {about['bytes']} were written")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
