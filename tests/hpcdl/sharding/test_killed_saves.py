"""A checkpoint that two processes write, killed a hundred times: a whole state is there each time, none is lost."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_of_a_hundred_kills_each_leaves_a_whole_state_and_none_is_lost(tmp_path):
    run = [sys.executable, "-m", "benchmarks.harness.killed_saves", "100", str(tmp_path)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stderr
    outcome = ast.literal_eval(done.stdout.splitlines()[-1])
    assert outcome["kills"] == outcome["whole"] == 100
    assert outcome["newer"] > 30, "most kills come after some states were written"
    assert outcome["states"] > 100
    assert len(list((tmp_path / "checkpoint").glob("step-*"))) >= 1
