"""MNIST: 70,000 handwritten digits of 28x28 pixels (LeCun, Bottou, Bengio and Haffner, 1998), fetched once.

Sizes and SHA-256 sums come from TensorFlow Datasets (url_checksums/mnist.txt).
"""

import gzip
import math
import struct
from pathlib import Path

import torch

from hpcdl.data.digits import Split
from hpcdl.data.download import RemoteFile, cache_folder, fetch

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
SUMS = {
    "train-images-idx3-ubyte.gz": (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    "train-labels-idx1-ubyte.gz": (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    "t10k-images-idx3-ubyte.gz": (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    "t10k-labels-idx1-ubyte.gz": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
}
FILES = {name: RemoteFile(name, *sums, tuple(url + name for url in MIRRORS)) for name, sums in SUMS.items()}


def mnist(folder: Path | None = None) -> Split:
    """Return 60,000 training images (N, 1, 28, 28) and 10,000 held out, kept in `folder` (default: the cache folder).

    Raises DownloadError, with what to do, if the files are missing and cannot be downloaded.
    """
    return Split(*_part("train", folder), *_part("t10k", folder))


def _part(prefix: str, folder: Path | None) -> tuple[torch.Tensor, torch.Tensor]:
    folder = folder or cache_folder() / "mnist"
    images, labels = (
        read_idx(fetch(FILES[f"{prefix}-{kind}.gz"], folder)) for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    return images.unsqueeze(1).float().div_(255), labels.long()


def read_idx(path: Path) -> torch.Tensor:
    """Read the uint8 tensor of a gzipped IDX file: two zero bytes, 8 for uint8, the number of sizes, sizes, data."""
    raw = gzip.decompress(Path(path).read_bytes())
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an IDX file of bytes: it begins with {raw[:4].hex(' ') or 'nothing'}")
    header = 4 + 4 * raw[3]
    sizes = struct.unpack(f">{raw[3]}I", raw[4:header]) if len(raw) >= header else ()
    if len(raw) != header + math.prod(sizes):
        raise ValueError(f"{path}: its header promises {math.prod(sizes):,} bytes, {len(raw) - header:,} follow")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=header).reshape(sizes)
