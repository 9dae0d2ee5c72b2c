"""The grading benchmark runs: all sides grade alike what they compare, its file names the machine and the bounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.walls import sandbox

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.skipif(sandbox.tier() == "weak", reason="this system has no sandbox")
def test_grading_is_measured_beside_nbgrader_and_an_absent_peer_is_named(tmp_path):
    pytest.importorskip("nbgrader", reason="nbgrader is not installed")
    file = tmp_path / "grading.json"
    absent = tmp_path / "otter" / "bin" / "python"
    absent.parent.mkdir(parents=True)
    absent.write_text("#!/bin/sh\nexit 1\n")
    absent.chmod(0o755)
    command = [sys.executable, "-m", "benchmarks", "grading", "--quick", "--otter", absent, "--out", file]
    parts = [argument for part in ("peers", "walls", "failures") for argument in ("--only", part)]
    ended = subprocess.run([*command, *parts], capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(file.read_text())
    assert {"processor", "cores", "torch", "load", "time", "isolation"} <= set(found["machine"])
    assert set(found["peers"]["seconds"]) == {"nbgrader, batch", "nbgrader, one call", "ours"}
    assert "otter" in found["peers"]["absent"]
    assert "otter is left out" in ended.stdout
    assert {"ours / nbgrader, batch", "a deadlock of 4 ranks is reported"} <= {row["what"] for row in found["promises"]}
