"""Small shards, and a loader of each kind."""

import numpy as np
import pytest

from hpcdl.data.loader import Shards, write_shards

N = 23  # divisible by none of the numbers of ranks and batches here


def sample(i: int) -> dict:
    return {"x": np.full((2, 3), i, np.uint8), "y": i}


@pytest.fixture
def shards(tmp_path) -> Shards:
    """23 samples in shards of 5: x is (2, 3) of the sample's number, y the number."""
    write_shards(tmp_path / "shards", map(sample, range(N)), per_shard=5)
    return Shards(tmp_path / "shards")
