"""CIFAR-10: 60,000 colour photographs of 32x32 pixels in ten classes (Krizhevsky, 2009), fetched once (170 MB).

The binary version is read, not the Python version: that one is a pickle, and a pickle from the net can run code.
Its size and SHA-256 sum come from TensorFlow Datasets (url_checksums/cifar10.txt).
"""

import tarfile
from pathlib import Path

import torch

from hpcdl.data.digits import Split
from hpcdl.data.download import RemoteFile, cache_folder, fetch

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE = RemoteFile(
    "cifar-10-binary.tar.gz",
    170052171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
    ),
)
BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
RECORD = 1 + 3 * 32 * 32  # a label, then the red, green and blue planes, row by row


def cifar10(folder: Path | None = None) -> Split:
    """Return 50,000 training images (N, 3, 32, 32) and 10,000 held out, kept in `folder` (default: the cache folder).

    Raises DownloadError, with what to do, if the archive is missing and cannot be downloaded. Takes 740 MB of memory.
    """
    *learn, held_out = read_records(fetch(ARCHIVE, folder or cache_folder() / "cifar10"), BATCHES)
    return Split(*_images(torch.cat(learn)), *_images(held_out))


def _images(records: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return records[:, 1:].reshape(-1, 3, 32, 32).float().div_(255), records[:, 0].long()


def read_records(archive: Path, names: tuple[str, ...]) -> list[torch.Tensor]:
    """Return the records (n, 3073) uint8 of the archive's files, in the order of `names`; extract nothing to disk."""
    found = {}
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            name = member.name.rpartition("/")[2]
            if name in names and (file := tar.extractfile(member)):
                raw = file.read()
                if not raw or len(raw) % RECORD:
                    raise ValueError(f"{archive}: {name} has {len(raw):,} bytes, not a multiple of {RECORD:,}")
                found[name] = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, RECORD)
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{archive} lacks {', '.join(missing)}")
    return [found[name] for name in names]
