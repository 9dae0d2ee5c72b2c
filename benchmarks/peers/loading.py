"""Loaders of other houses over the same images: torch's DataLoader, and webdataset where it is installed."""

import importlib
import importlib.util
import io
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WORKERS = 2


class Images(Dataset):
    """Images in one file of NumPy's, mapped into memory, one at a time."""

    def __init__(self, folder: Path):
        self.x, self.y = np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy")

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.x[i].copy()), int(self.y[i])


class Batches(Images):
    """The same dataset, from which DataLoader can ask for a whole batch at once: the best case for it."""

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.x[indices]), torch.from_numpy(self.y[indices])


def _as_it_is(batch: Any) -> Any:
    return batch


def data_loader(folder: Path, batch: int) -> Callable[[], Iterable]:
    """Epochs of torch's DataLoader as its documentation has it."""
    loader = DataLoader(Images(folder), batch, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    return lambda: loader


def data_loader_of_batches(folder: Path, batch: int) -> Callable[[], Iterable]:
    """Epochs of torch's DataLoader with a data set that fetches whole batches."""
    loader = DataLoader(
        Batches(folder), batch, shuffle=True, num_workers=WORKERS, persistent_workers=True, collate_fn=_as_it_is
    )
    return lambda: loader


def webdataset(folder: Path, batch: int) -> Callable[[], Iterable] | None:
    """Epochs of webdataset: shards in turns, and a shuffle in a window of 1,000; None where it is not installed."""
    if not importlib.util.find_spec("webdataset"):
        return None
    wds = importlib.import_module("webdataset")
    shape = np.load(folder / "x.npy", mmap_mode="r").shape[1:]

    def decode(sample: dict[str, bytes]) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(np.frombuffer(sample["x"], np.uint8).reshape(shape).copy()), int(sample["y"])

    urls = sorted(map(str, folder.glob("*.tar")))
    data = wds.WebDataset(urls, shardshuffle=len(urls)).shuffle(1000).map(decode).batched(batch)
    loader = wds.WebLoader(data, batch_size=None, num_workers=WORKERS, persistent_workers=True)
    return lambda: loader


def write(folder: Path, x: np.ndarray, y: np.ndarray, shards: int) -> None:
    """The images as these loaders want them: two files of NumPy's, and so many tar files."""
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    for number, rows in enumerate(np.array_split(np.arange(len(y)), shards)):
        with tarfile.open(folder / f"{number:03}.tar", "w") as archive:
            for i in rows.tolist():
                _add(archive, f"{i:06}.x", x[i].tobytes())
                _add(archive, f"{i:06}.y", str(y[i]).encode())


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
