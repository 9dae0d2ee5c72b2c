"""One rank's part of a checkpoint in one file: a line of JSON, which says what follows, and the elements themselves."""

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from hpcdl.files import written_whole
from hpcdl.sharding.flat import Shard

BLOCK = 1 << 20  # bytes that are read at a time


class Entry(NamedTuple):
    """Elements `start` to `stop` of tensor `name`, at byte `offset` of the data, with their checksum."""

    name: str
    shape: list[int]
    dtype: str
    start: int
    stop: int
    offset: int
    checksum: int


def write(path: Path, shards: Mapping[str, Shard]) -> tuple[int, int]:
    """Write the shards that are not empty; returns the file's bytes and its header's checksum."""
    entries, data, offset = [], [], 0
    for name, shard in shards.items():
        if shard.piece.numel():
            raw = _bytes_of(shard.piece)
            stop, dtype = shard.start + shard.piece.numel(), str(shard.piece.dtype).removeprefix("torch.")
            entries.append(Entry(name, list(shard.shape), dtype, shard.start, stop, offset, zlib.crc32(raw)))
            data.append(raw)
            offset += len(raw)
    header = json.dumps(entries).encode() + b"\n"
    with written_whole(path, "wb") as file:
        for part in (header, *data):
            file.write(part)
    return len(header) + offset, zlib.crc32(header)


def entries_of(path: Path, checksum: int) -> tuple[list[Entry], int]:
    """What is in a file, and where its data begin. Raises ValueError where the header is not what was written."""
    with path.open("rb") as file:
        header = file.readline()
    if zlib.crc32(header) != checksum:
        raise ValueError(f"{path} is damaged: its header's checksum differs; restore it, or load another checkpoint")
    return [Entry(*fields) for fields in json.loads(header)], len(header)


def read(path: Path, begin: int, entry: Entry, start: int, out: torch.Tensor) -> tuple[int, int]:
    """Copy into `out`, the elements from `start` on, those that the entry has; returns which these are.

    All of the entry is read, a block at a time, and compared with its checksum: ValueError where they differ.
    """
    size = out.element_size()
    first, last = max(start, entry.start), min(start + out.numel(), entry.stop)
    target, checksum, at = memoryview(_bytes_of(out)), 0, entry.start * size
    for block in _blocks(path, begin + entry.offset, (entry.stop - entry.start) * size):
        checksum = zlib.crc32(block, checksum)
        low, high = max(at, first * size), min(at + len(block), last * size)
        if low < high:
            target[low - start * size : high - start * size] = block[low - at : high - at]
        at += len(block)
    if checksum != entry.checksum:
        raise ValueError(
            f"{path} is damaged: the checksum of {entry.name} differs; restore it, or load another checkpoint"
        )
    return first, last


def _blocks(path: Path, offset: int, nbytes: int) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(BLOCK, nbytes)))
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        while nbytes > 0:
            got = file.readinto(buffer[: min(BLOCK, nbytes)])
            if not got:
                return  # shorter than it was: the checksum will differ
            nbytes -= got
            yield buffer[:got]


def _bytes_of(x: torch.Tensor):
    """The memory of a flat tensor, as bytes."""
    return x.detach().contiguous().cpu().view(torch.uint8).numpy()
