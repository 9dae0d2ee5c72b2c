"""A grader that is killed leaves folders behind; the next one removes them, and no other."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from autograder.walls import scratch

pytestmark = pytest.mark.skipif(scratch.fcntl is None, reason="this system has no locks on folders")
MAKER = (
    "import time; from autograder.walls.scratch import Folder; f = Folder(); print(f.name, flush=True); time.sleep(600)"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def aged(path: str | Path) -> Path:
    long_ago = time.time() - 2 * scratch.AGE
    os.utime(path, (long_ago, long_ago))
    return Path(path)


def test_folder_of_a_killed_process_is_removed():
    process = subprocess.Popen([sys.executable, "-c", MAKER], stdout=subprocess.PIPE, text=True)
    with process:
        path = aged(process.stdout.readline().strip())
        scratch.clear()
        assert path.is_dir()
        process.kill()
    (path / "left").write_text("behind")
    scratch.clear()
    assert path.is_dir()  # it was changed a moment ago
    aged(path)
    scratch.clear()
    assert not path.exists()


def test_what_is_held_here_or_is_not_a_graders_stays(temporary):
    other, link = temporary / "grade-of-mine", temporary / f"{scratch.PREFIX}link"
    other.mkdir()
    link.symlink_to(other)
    with scratch.Folder() as name:
        for path in (name, other):
            aged(path)
        os.utime(link, (0, 0), follow_symlinks=False)
        scratch.clear()
        assert Path(name).is_dir()
        assert other.is_dir()
        assert link.is_symlink()
    assert not Path(name).exists()
