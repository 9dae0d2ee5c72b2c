"""The controller process: ipyparallel's, which ends with the kernel."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from hpcdl.cluster import lifeline
from hpcdl.cluster.engine_sets import JOB_FILE
from hpcdl.cluster.ports import Held
from hpcdl.cluster.watcher import DIRECTORY

PORTS = 16  # as many as ipyparallel's controller uses at most where messages to all engines take one step


def clean_up() -> None:
    """Remove the cluster's directory, after the engines, which write in it, have had time to end."""
    directory = Path(os.environ[DIRECTORY])
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        cancel_pending(directory)
    time.sleep(1)
    shutil.rmtree(directory, ignore_errors=True)


def cancel_pending(directory: Path) -> None:
    """Remove the cluster's job from Slurm's queue; a running job ends by itself, with its lease."""
    job = directory / JOB_FILE
    if job.exists():
        subprocess.run(["scancel", "--state=PENDING", job.read_text()], timeout=30, check=False)


if __name__ == "__main__":
    lifeline.hold(clean_up)
    os.chdir(os.environ[DIRECTORY])  # ipyparallel imports from here: the notebook's folder may have a select.py
    held = Held()
    if sys.platform == "linux":  # ipyparallel chooses ports long before it listens on the last of them
        sys.argv.append("--IPController.ports=" + ",".join(str(held.port()) for _ in range(PORTS)))
    from ipyparallel.controller.app import main

    main()
