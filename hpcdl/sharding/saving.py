"""Checkpoints of shards: every rank writes its own, and any number of ranks can read them.

On disk, in the folder of the training:

    manifest.json          the step of the complete state, its folder, and each file's length and checksum
    step-12-0/rank-0-of-4  one rank's shards: `shard_file`

A new state is written next to the old one. When every rank's file is on the disk, one atomic `rename` of the manifest
makes it the current state; then the old one is removed. Whichever rank is killed at whatever moment, the manifest names
a complete state, the new or the previous one.
"""

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hpcdl.comm import Communicator
from hpcdl.files import write_whole
from hpcdl.sharding import shard_file, states
from hpcdl.sharding.flat import Shard
from hpcdl.sharding.offload import Offloaded
from hpcdl.sharding.together import together

MANIFEST = "manifest.json"
OPTIONS, STATE = "options", "state"  # the names of texts about an optimizer


def save(path: str | Path, step: int, shards: Mapping[str, Shard], comm: Communicator) -> None:
    """Make the ranks' `shards` the state of `step` in folder `path`, which all ranks reach; every rank calls it.

    Together they must hold every element of every tensor; if several ranks have an element, their values are equal. No
    rank sees another's shards. Until everything is written the old state stays; if a rank fails, it stays for good, and
    every rank raises OSError.
    """
    path = Path(path)
    folder = Path(together(lambda: _new_folder(path, step) if comm.rank == 0 else "", comm)[0])
    try:
        files = together(lambda: json.dumps(_write(folder, shards, comm)), comm)
    except OSError:
        if comm.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    manifest = {"step": step, "folder": folder.name, "files": [json.loads(file) for file in files]}
    together(lambda: _commit(path, manifest) if comm.rank == 0 else "", comm)


def load(path: str | Path, comm: Communicator, check: bool = True) -> "Checkpoint":
    """Find the last complete state in folder `path`, the same on every rank; every rank calls it, on any number of
    ranks.

    Rank 0 reads the manifest and tells the others. With `check`, `fill` and `read` verify checksums, which takes time.
    On every rank, raises FileNotFoundError if there is no state or a rank's file is missing, and ValueError if a file
    is damaged.
    """
    path = Path(path)
    state = json.loads(together(lambda: json.dumps(_read_state(path)) if comm.rank == 0 else "", comm)[0])
    return Checkpoint(path / state["folder"], state["step"], state["files"], comm, check)


class Checkpoint:
    """A complete state: its `step`, and `shapes` of its tensors by name. `fill` and `read` read the tensors."""

    def __init__(self, folder: Path, step: int, files: list[dict[str, Any]], comm: Communicator, check: bool):
        self.step = step
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._comm, self._check = comm, check
        self._sources: dict[str, list[tuple[Path, int, shard_file.Entry]]] = {}
        for file in files:
            for entry in (shard_file.Entry(*fields) for fields in file["entries"]):
                self.shapes[entry.name] = tuple(entry.shape)
                self._sources.setdefault(entry.name, []).append((folder / file["name"], file["begin"], entry))

    def read(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Return elements `start` to `stop` of a tensor, flat; only the files that hold them are opened.

        Raises KeyError for an unknown name, and ValueError if elements are in no file, or a file is damaged.
        """
        if name not in self._sources:
            raise KeyError(f"the checkpoint of step {self.step} has no tensor {name!r}; see its `shapes`")
        sources = sorted(self._sources[name], key=lambda source: source[2].start)
        out = torch.empty(stop - start, dtype=getattr(torch, sources[0][2].dtype))
        done = start
        for path, begin, entry in sources:
            if entry.start <= done < min(entry.stop, stop):
                done = shard_file.read(path, begin, entry, start, out, self._check)[1]
        if done < stop:
            raise ValueError(
                f"the checkpoint of step {self.step} has no element {done} of {name}; save all ranks' shards"
            )
        return out

    def fill(self, shards: Mapping[str, Shard]) -> None:
        """Read this rank's `shards` in place; every rank calls it. If one rank fails, none changes anything."""
        found: list[torch.Tensor] = []

        def gather() -> str:
            found.extend(self._read_like(name, shard) for name, shard in shards.items())
            return ""

        together(gather, self._comm)
        for shard, piece in zip(shards.values(), found, strict=True):
            shard.piece.detach().copy_(piece)

    def restore(self, optimizer: torch.optim.Optimizer | Offloaded, shards: Mapping[str, Shard]) -> None:
        """Give `optimizer`, which steps these shards, the options and states saved by `with_states`.

        Every rank calls it; if one rank fails, none changes anything, and every rank raises KeyError for a parameter
        without saved states, and ValueError for another number of groups.
        """
        groups = _groups_of(optimizer)
        mine = _stepped_by(groups, shards) or list(shards)  # a rank may step nothing: then any has the options
        found: dict[str, Any] = {}
        options: list[str] = []

        def gather() -> str:
            tables = {name: json.loads(self._text(_table_of(name, shards))) for name in mine}
            options.extend({table["options"]: self._text(table["options"]) for table in tables.values()}.values())
            states.require_as_many(groups, [json.loads(text) for text in options])
            for name, table in tables.items():
                if shards[name].piece.numel():
                    find = partial(self._state, shards[name])
                    found[name] = states.unpack_state(table["state"], find)
            return ""

        together(gather, self._comm)
        for text in options:
            states.give_options(groups, text)
        for name, state in found.items():
            piece = shards[name].piece
            optimizer.state.pop(piece, None)
            if state:
                optimizer.state[piece] = state

    def _state(self, shard: Shard, saved: dict[str, Any]) -> torch.Tensor:
        if "shape" in saved:  # a number for the whole parameter
            number = self.read(saved["name"], 0, 1).view(saved["shape"])
            return number.to(shard.piece.device) if saved["beside"] else number
        return self.read(saved["name"], shard.start, shard.start + shard.piece.numel()).to(shard.piece.device)

    def _text(self, name: str) -> str:
        """Return the text that one rank wrote; every other rank's is the same."""
        if name not in self._sources:
            raise KeyError(
                f"the checkpoint of step {self.step} has no {name!r}; save with_states(shards, optimizer) of an "
                "optimizer of the same parameters"
            )
        path, begin, entry = self._sources[name][0]
        raw = torch.empty(entry.stop, dtype=torch.uint8)
        shard_file.read(path, begin, entry, 0, raw, self._check)
        return states.as_text(raw)

    def _read_like(self, name: str, shard: Shard) -> torch.Tensor:
        if name in self.shapes and self.shapes[name] != tuple(shard.shape):
            raise ValueError(f"{name} has shape {self.shapes[name]} in the checkpoint, and {tuple(shard.shape)} here")
        return self.read(name, shard.start, shard.start + shard.piece.numel())


def with_states(shards: Mapping[str, Shard], optimizer: torch.optim.Optimizer | Offloaded) -> dict[str, Shard]:
    """Return `shards` plus the options and states of `optimizer` for them: everything needed to continue a training.

    A tensor of a parameter's state is named "NAME/KEY", or "NAME//KEY" if it is one number for the whole parameter,
    like Adam's `step`. "NAME//state" says, as JSON, what the state consists of, and "//options-CHECKSUM" holds the
    options of all groups, such as learning rates, the same on all ranks. In NAME and KEY "/" is written "%2F". Raises
    ValueError for an option or a state other than tensors, numbers, strings, lists and dicts, and for a tensor whose
    elements are not the parameter's: other ranks would have other parts of it.
    """
    found, groups = dict(shards), _groups_of(optimizer)
    states.require_among(groups, [shard.piece for shard in shards.values()])
    options = states.options_of(groups)
    place = _free(f"//{OPTIONS}-{zlib.crc32(options.encode()):08x}", shards)
    found[place] = _written(options)
    for name in _stepped_by(groups, shards) if groups else shards:
        shard, table = shards[name], _table_of(name, shards)
        if shard.piece.numel():
            found[table] = shard  # keeps the name
            packed = states.pack_state(optimizer.state.get(shard.piece, {}), partial(_kept, found, name))
            found[table] = _written(json.dumps({"options": place, "state": packed}))
    return found


def _kept(found: dict[str, Shard], name: str, where: str, value: torch.Tensor) -> dict[str, Any]:
    """Put a tensor of the state of `name` into `found`; return where it is."""
    piece = found[name].piece
    if value.shape == piece.shape:
        place = _free(f"{states.quoted(name)}{where}", found)
        found[place] = found[name]._replace(piece=value)
        return {"name": place}
    if value.numel() != 1:
        raise ValueError(
            f"the optimizer's state {where.removeprefix('/')} of {name} has shape {tuple(value.shape)}, and this "
            f"rank's part of the parameter {tuple(piece.shape)}; a checkpoint holds numbers, and tensors like the "
            "parameter"
        )
    place = _free(f"{states.quoted(name)}/{where}", found)
    found[place] = Shard(value.reshape(-1), 0, ())
    beside = piece.device.type != "cpu" and value.device == piece.device
    return {"name": place, "shape": list(value.shape), "beside": beside}


def _free(name: str, taken: Mapping[str, Shard]) -> str:
    """Return `name`, or a longer one if it is taken: a parameter may have it."""
    while name in taken:
        name += "/"
    return name


def _table_of(name: str, shards: Mapping[str, Shard]) -> str:
    """Return the name of the text about the state of parameter `name`."""
    return _free(f"{states.quoted(name)}//{STATE}", shards)


def _written(text: str) -> Shard:
    raw = states.as_tensor(text)
    return Shard(raw, 0, (len(raw),))


def _groups_of(optimizer: Any) -> list[dict[str, Any]]:
    """Return an optimizer's groups; none for an optimizer without groups."""
    inner = optimizer.optimizer if isinstance(optimizer, Offloaded) else optimizer
    return list(getattr(inner, "param_groups", ()))


def _stepped_by(groups: list[dict[str, Any]], shards: Mapping[str, Shard]) -> list[str]:
    """Return the names of the shards that are in `groups`."""
    params = {id(param) for group in groups for param in group["params"]}
    return [name for name, shard in shards.items() if id(shard.piece) in params]


# -- on disk ----------------------------------------------------------------------------------------------------------


def _new_folder(path: Path, step: int) -> str:
    attempt = 0
    while (folder := path / f"step-{step}-{attempt}").exists():
        attempt += 1
    folder.mkdir(parents=True)
    return str(folder)


def _write(folder: Path, shards: Mapping[str, Shard], comm: Communicator) -> dict[str, Any]:
    name = f"rank-{comm.rank}-of-{comm.size}"
    nbytes, checksum = shard_file.write(folder / name, shards)
    _settle(folder)
    return {"name": name, "bytes": nbytes, "checksum": checksum}


def _commit(path: Path, manifest: dict[str, Any]) -> str:
    _settle(path)
    write_whole(path / MANIFEST, json.dumps(manifest, indent=1))
    _settle(path)
    for old in path.glob("step-*-*"):
        if old.name != manifest["folder"]:
            shutil.rmtree(old, ignore_errors=True)
    return ""


def _settle(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _read_state(path: Path) -> dict[str, Any]:
    """Return the manifest with each file's `entries` and the offset `begin` of its data; all files must be complete."""
    try:
        state = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} has no {MANIFEST}: no state was saved there") from None
    for rank, file in enumerate(state["files"]):
        found = path / state["folder"] / file["name"]
        if not found.exists():
            raise FileNotFoundError(
                f"the file of rank {rank} is missing: {found}; restore it, or load another checkpoint"
            )
        if found.stat().st_size != file["bytes"]:
            raise ValueError(f"{found} has {found.stat().st_size} bytes, and {file['bytes']} were written; restore it")
        file["entries"], file["begin"] = shard_file.entries_of(found, file["checksum"])
    return state
