"""Checkpoints of torch.distributed.checkpoint (DCP), written and read by ranks of any of our machines.

A shard is a range of a tensor in row-major order, and DCP stores boxes: so a range is split into as few boxes as
possible (part of a row, whole rows, part of a row). No rank sees another's elements, and torch needs no process group.
"""

import base64
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from hpcdl.comm import Communicator
from hpcdl.sharding.flat import Shard
from hpcdl.sharding.together import together

Numbers = tuple[int, ...]
Box = tuple[Numbers, Numbers]  # where it begins in each dimension, and how long it is


def save_dcp(path: str | Path, shards: Mapping[str, Shard], comm: Communicator) -> None:
    """Write the ranks' `shards` to folder `path`, for `torch.distributed.checkpoint.load`; every rank calls it.

    Names and shapes are the module's. Together the ranks hold every element; if several ranks have a box, the first one
    writes it. Every rank raises OSError if one cannot write, or if a checkpoint already exists: this one would
    overwrite its files while they are still needed.
    """
    mine = _boxes_of(shards)
    claimed = together(lambda: json.dumps(_claim(Path(path), mine)), comm)
    earlier = {(name, tuple(begin)) for claim in claimed[: comm.rank] for name, begin in json.loads(claim)}
    items = [_item(name, box, shards[name]) for name, box, _ in mine if (name, box[0]) not in earlier]
    writer = FileSystemWriter(path)
    writer.set_up_storage_writer(comm.rank == 0)
    plan = writer.prepare_global_plan([writer.prepare_local_plan(SavePlan(items))] * comm.size)[comm.rank]
    written = together(lambda: _packed(items, writer.write_data(plan, _Save(mine)).wait()), comm)
    together(lambda: _finish(writer, written) if comm.rank == 0 else "", comm)


def load_dcp(path: str | Path, shards: Mapping[str, Shard], comm: Communicator) -> None:
    """Fill this rank's `shards` in place from a checkpoint that DCP has written; every rank calls it.

    Each rank reads only its own elements, on any number of ranks, whatever number of ranks and boxes the checkpoint was
    written with. If one rank fails, none changes anything, and every rank raises FileNotFoundError without a
    checkpoint, KeyError for an unknown name, ValueError for a different shape or missing elements. The index is a
    pickle: read only checkpoints that you trust.
    """
    found = {name: shard._replace(piece=torch.empty_like(shard.piece.detach())) for name, shard in shards.items()}
    together(lambda: _read(FileSystemReader(path), found), comm)
    for name, shard in shards.items():
        shard.piece.detach().copy_(found[name].piece)


def boxes(start: int, stop: int, shape: Sequence[int]) -> Iterator[Box]:
    """Return the boxes, in order, that hold the elements `start` to `stop` of a tensor of `shape` in row-major order.

    There are at most 2 d - 1 for d dimensions. A tensor without elements is one box.
    """
    if not prod(shape):
        yield (0,) * len(shape), tuple(shape)
        return
    if start >= stop:
        return
    if not shape:
        yield (), ()
        return
    row = prod(shape[1:])
    first, last = -(-start // row), stop // row  # whole rows
    if first > last:
        yield from _in_row(last, start, stop, shape)
        return
    yield from _in_row(first - 1, start, first * row, shape)
    if first < last:
        yield (first, *[0] * (len(shape) - 1)), (last - first, *shape[1:])
    yield from _in_row(last, last * row, stop, shape)


def _in_row(i: int, start: int, stop: int, shape: Sequence[int]) -> Iterator[Box]:
    row = prod(shape[1:])
    for begin, sizes in boxes(start - i * row, stop - i * row, shape[1:]):
        yield (i, *begin), (1, *sizes)


Boxes = list[tuple[str, Box, torch.Tensor]]


def _boxes_of(shards: Mapping[str, Shard]) -> Boxes:
    """Yield every box of every shard, with its elements as a view of the piece."""
    found: Boxes = []
    for name, shard in shards.items():
        at, piece = 0, shard.piece.detach().as_subclass(torch.Tensor)
        for box in boxes(shard.start, shard.start + piece.numel(), shard.shape):
            found.append((name, box, piece[at : at + prod(box[1])].view(box[1])))
            at += prod(box[1])
    return found


# -- writing ----------------------------------------------------------------------------------------------------------


class _Save(DefaultSavePlanner):
    """torch's planner for writing: it asks for the elements of a box."""

    def __init__(self, found: Boxes):
        super().__init__()
        self._found = {(name, begin): x for name, (begin, _), x in found}

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        assert index.offset is not None  # `_item` gives it
        return self._found[index.fqn, tuple(index.offset)]


def _claim(path: Path, found: Boxes) -> list[tuple[str, Numbers]]:
    if (path / ".metadata").exists():
        raise FileExistsError(f"{path} has a checkpoint already; give a new folder")
    return [(name, begin) for name, (begin, _), _ in found]


def _item(name: str, box: Box, shard: Shard) -> WriteItem:
    begin, sizes = map(torch.Size, box)
    properties = TensorProperties.create_from_tensor(shard.piece.detach().as_subclass(torch.Tensor))
    data = TensorWriteData(ChunkStorageMetadata(begin, sizes), properties, torch.Size(shard.shape))
    return WriteItem(MetadataIndex(name, begin), WriteItemType.SHARD, tensor_data=data)


def _packed(*objects: object) -> str:
    return base64.b64encode(pickle.dumps(objects)).decode()


def _finish(writer: FileSystemWriter, written: list[str]) -> str:
    """Write the index of all ranks' data."""
    plans, results = zip(*(pickle.loads(base64.b64decode(line)) for line in written), strict=True)
    _, metadata = create_default_global_save_plan([SavePlan(items) for items in plans])
    writer.finish(metadata, list(results))
    return ""


# -- reading ----------------------------------------------------------------------------------------------------------


class _Load(DefaultLoadPlanner):
    """torch's planner for reading: it asks where the elements of a box go."""

    def __init__(self, found: Boxes):
        super().__init__()
        self._found = {(name, begin): x for name, (begin, _), x in found}

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        assert index.offset is not None  # `_read` gives it
        return self._found[index.fqn, tuple(index.offset)]


def _read(reader: FileSystemReader, shards: Mapping[str, Shard]) -> str:
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, is_coordinator=False)
    found, items = _boxes_of(shards), []
    for name, (begin, sizes), x in found:
        known = _known(metadata.state_dict_metadata, name, shards[name].shape)
        chunk = ChunkStorageMetadata(torch.Size(begin), torch.Size(sizes))
        reads = create_read_items_for_chunk_list(name, known, [chunk])
        if sum(prod(read.lengths) for read in reads) != x.numel():
            raise ValueError(f"the checkpoint lacks elements of {name}; save all ranks' shards")
        items += reads
    reader.read_data(LoadPlan(items), _Load(found)).wait()
    return ""


def _known(index: Mapping[str, object], name: str, shape: Numbers) -> TensorStorageMetadata:
    known = index.get(name)
    if not isinstance(known, TensorStorageMetadata):
        raise KeyError(f"the checkpoint has no tensor {name!r}")
    if tuple(known.size) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(known.size)} in the checkpoint, and {tuple(shape)} here")
    return known
