"""The controller process: ipyparallel's, which ends with the kernel."""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from hpcdl.cluster import lifeline
from hpcdl.cluster.engine_sets import JOB_FILE
from hpcdl.cluster.watcher import DIRECTORY


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
    from ipyparallel.controller.app import main

    main()
