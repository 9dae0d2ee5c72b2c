"""A folder of shards: written whole, and read sample by sample or many at a time."""

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hpcdl.data.loader import shard
from hpcdl.data.loader.shard import Sample
from hpcdl.files import write_whole

MANIFEST = "shards.json"
KEPT = ("name", "count", "bytes", "table", "checksum")  # of each file, in the manifest


def write_shards(folder: str | Path, samples: Iterable[Sample], per_shard: int = 4096) -> int:
    """Write `samples`, each a dict of arrays, numbers or bytes, in files of `per_shard`; returns how many there are.

    The manifest comes last: until then the folder holds what it held before. Raises ValueError where there is no
    sample, or one has other fields, dtypes or shapes than the first, and FileExistsError where shards are there.
    """
    if per_shard < 1:
        raise ValueError(f"per_shard is {per_shard}; a shard has 1 sample or more")
    folder = Path(folder)
    if (folder / MANIFEST).exists():
        raise FileExistsError(f"{folder} holds shards already; write to another folder, or remove this one")
    folder.mkdir(parents=True, exist_ok=True)
    iterator, fields = iter(samples), None
    files: list[dict[str, Any]] = []
    while chunk := list(itertools.islice(iterator, per_shard)):
        fields = fields or shard.fields_of(chunk[0])
        files.append(shard.write(folder / f"shard-{len(files):05}", fields, chunk))
    if not files:
        raise ValueError("there is no sample to write; the first one says which fields all have")
    write_whole(folder / MANIFEST, json.dumps({"format": 1, "fields": fields, "shards": files}, indent=1))
    return sum(file["count"] for file in files)


def opened(shards: "Shards | str | Path") -> "Shards":
    """Return shards as they are, or those of a folder."""
    return Shards(shards) if isinstance(shards, str | Path) else shards


def _manifest(folder: Path) -> tuple[list[shard.Field], list[dict[str, Any]]]:
    """Return the fields of a folder's samples, and what its manifest keeps of each file; ValueError if damaged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        fields = [
            shard.Field(name, dtype, None if shape is None else tuple(shape))
            for name, dtype, shape in manifest["fields"]
        ]
        files = [{key: about[key] for key in KEPT} for about in manifest["shards"]]
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} has no {MANIFEST}; write_shards(folder, samples) makes it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise shard.damaged(folder / MANIFEST, f"it is no manifest of shards ({error!r})") from None
    if not files:
        raise shard.damaged(folder / MANIFEST, "it names no file")
    return fields, files


class Shards:
    """The samples of a folder that `write_shards` wrote: `len`, sample i as `shards[i]`, many at once by `take`.

    Raises FileNotFoundError without a manifest or a file, and ValueError for a damaged one; blocks are compared with
    their checksums when they are read for the first time.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.fields, files = _manifest(self.folder)
        self.shards = [shard.ShardFile(self.folder / about["name"], about) for about in files]
        self._ends = np.cumsum([each.count for each in self.shards])

    def __reduce__(self):
        return Shards, (self.folder,)  # another process maps the files itself

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: int) -> Sample:
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}; they are numbered from 0")
        number = self.shard_of(i)
        return self.shards[number].sample(i - self._first(number))

    def shard_of(self, i: int) -> int:
        """Return the number of the shard that has sample `i`."""
        return int(np.searchsorted(self._ends, i, side="right"))

    def take(self, indices: np.ndarray, out: dict[str, np.ndarray], note: Callable[[int], None] = lambda _: None):
        """Copy samples into arrays, `out[field][k]` from sample `indices[k]`; `note(shard)` before each is read.

        Raises IndexError for a number that no sample has.
        """
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"samples {indices.min()} to {indices.max()} of {len(self)}; they are numbered from 0")
        numbers = np.searchsorted(self._ends, indices, side="right")
        for number in np.unique(numbers).tolist():
            note(number)
            where = np.flatnonzero(numbers == number)
            rows = indices[where] - self._first(number)
            for name, array in out.items():
                self.shards[number].take(name, rows, array, where)

    def verify(self) -> None:
        """Read everything, and compare it with its checksums; raises ValueError where it is damaged."""
        for each in self.shards:
            each.verify()

    def _first(self, number: int) -> int:
        return int(self._ends[number]) - self.shards[number].count
