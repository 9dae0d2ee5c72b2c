"""One rank's part of a checkpoint in one file: a line of JSON that describes the content, then the elements."""

import json
import zlib
from collections.abc import Mapping
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hpcdl.files import written_whole
from hpcdl.sharding.flat import Shard

BLOCK = 1 << 18  # bytes per checksum: reading part of a tensor reads little else


class Entry(NamedTuple):
    """Elements `start` to `stop` of tensor `name`, at byte `offset` of the data, with a checksum for each block."""

    name: str
    shape: list[int]
    dtype: str
    start: int
    stop: int
    offset: int
    checksums: list[int]


def write(path: Path, shards: Mapping[str, Shard]) -> tuple[int, int]:
    """Write nonempty shards, and tensors without elements; return the file's bytes and its header's checksum."""
    entries, data, offset = [], [], 0
    for name, shard in shards.items():
        if shard.piece.numel() or not prod(shard.shape):
            raw = _bytes_of(shard.piece)
            stop, dtype = shard.start + shard.piece.numel(), str(shard.piece.dtype).removeprefix("torch.")
            entries.append(Entry(name, list(shard.shape), dtype, shard.start, stop, offset, _checksums(raw)))
            data.append(raw)
            offset += len(raw)
    header = json.dumps(entries).encode() + b"\n"
    with written_whole(path, "wb") as file:
        for part in (header, *data):
            file.write(part)
    return len(header) + offset, zlib.crc32(header)


def entries_of(path: Path, checksum: int) -> tuple[list[Entry], int]:
    """Return a file's entries, and where its data begin. Raises ValueError if the header is damaged."""
    with path.open("rb") as file:
        header = file.readline()
    if zlib.crc32(header) != checksum:
        raise ValueError(f"{path} is damaged: its header's checksum differs; restore it, or load another checkpoint")
    return [Entry(*fields) for fields in json.loads(header)], len(header)


def read(path: Path, begin: int, entry: Entry, start: int, out: torch.Tensor, check: bool = True) -> tuple[int, int]:
    """Copy the entry's elements into `out`, which begins at element `start`; return which elements were copied.

    With `check` all blocks that contain them are read and compared with their checksums; raises ValueError if one
    differs.
    """
    size = out.element_size()
    first, last = max(start, entry.start), min(start + out.numel(), entry.stop)
    low, high = (first - entry.start) * size, (last - entry.start) * size  # bytes of the entry
    target = memoryview(_bytes_of(out))[(first - start) * size : (last - start) * size]
    with path.open("rb") as file:
        file.seek(begin + entry.offset + (low - low % BLOCK if check else low))
        if not check:
            whole = file.readinto(target) == len(target)
        else:
            whole = _read_blocks(file, entry, low, high, (entry.stop - entry.start) * size, target)
    if not whole:
        raise ValueError(
            f"{path} is damaged: the checksum of {entry.name} differs; restore it, or load another checkpoint"
        )
    return first, last


def _read_blocks(file: BufferedReader, entry: Entry, low: int, high: int, length: int, target: memoryview) -> bool:
    """Read bytes `low` to `high` of the entry's `length` block by block from the current position of `file`; return
    whether all are correct."""
    spare = memoryview(bytearray(BLOCK))
    for at in range(low - low % BLOCK, high, BLOCK):
        end = min(at + BLOCK, length)
        inside = low <= at and end <= high  # read directly into its place
        block = target[at - low : end - low] if inside else spare[: end - at]
        if file.readinto(block) < len(block) or zlib.crc32(block) != entry.checksums[at // BLOCK]:
            return False
        if not inside:
            a, b = max(low, at), min(high, end)
            target[a - low : b - low] = block[a - at : b - at]
    return True


def _checksums(raw: Any) -> list[int]:
    return [zlib.crc32(raw[at : at + BLOCK]) for at in range(0, len(raw), BLOCK)]


def _bytes_of(x: torch.Tensor) -> Any:  # numpy's arrays are buffers, but their types do not say so
    """Return the memory of a flat tensor, as bytes."""
    return x.detach().as_subclass(torch.Tensor).contiguous().cpu().view(torch.uint8).numpy()
