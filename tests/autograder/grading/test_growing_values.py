"""No check takes memory or time without end for what an answer returns: see growing_values.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autograder import exercises

ROOT = Path(exercises.__file__).parents[2]
PROGRAM = Path(__file__).with_name("growing_values.py")
SAMPLE, MANY = 1, 5  # changed returns per check, in CI and in a long run
SECONDS = 280  # of a sample; many take some times as long


def grown(slug: str, sample: int, seed: int) -> str:
    """Return what the checks of a lab did with answers that grow; empty if all is well."""
    command = [sys.executable, PROGRAM, slug, str(sample), str(seed)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"}  # ranks as threads take no more
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=sample * SECONDS)
    return ended.stdout + (ended.stderr if ended.returncode else "")


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are Linux's")
@pytest.mark.each_lab(turn=(2, 18))
@pytest.mark.parametrize("slug", exercises.LABS)
def test_a_sample_of_values(slug):
    assert grown(slug, SAMPLE, 0) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are Linux's")
@pytest.mark.long
@pytest.mark.timeout(MANY * SECONDS + 20)
@pytest.mark.parametrize("slug", exercises.LABS)
def test_many_values(slug):
    assert grown(slug, MANY, 1) == ""


PLANTED = """
import growing_values

def loop():
    for _ in range(10**9):
        pass

def double():
    x = [0]
    while True:
        x = x + x

growing_values.OURS = (__file__,)
growing_values.bound_memory()
for check, error in ((loop, growing_values.TooManyLinesError), (double, MemoryError)):
    try:
        with growing_values.few_lines():
            check()
    except error:
        print(check.__name__)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are Linux's")
def test_a_planted_loop_is_found(tmp_path):
    """So is a list that doubles until the memory ends."""
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{PROGRAM.parent}{os.pathsep}{ROOT}"}
    command = [sys.executable, tmp_path / "planted.py"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert ended.stdout == "loop\ndouble\n", ended.stderr
