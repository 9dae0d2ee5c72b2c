"""The benchmarks run, and what they write names the machine and every competitor."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcdl.collectives import ALL_REDUCE

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.long
@pytest.mark.mpi
def test_the_collectives_are_measured_beside_their_peers(tmp_path):
    file = tmp_path / "collectives.json"
    command = [sys.executable, BENCHMARKS / "collectives.py", "--quick", "--out", file]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(file.read_text())
    assert {"processor", "cores", "torch", "mpi", "load", "time"} <= set(found["machine"])
    for malloc in ("default", "raised"):
        assert set(found["seconds"][malloc]) == {*ALL_REDUCE, "MPI_Allreduce", "gloo"}
    assert found["simulator"][0]["messages"] == 2 * 255 * 256
    assert "kept" in ended.stdout
