"""The controller process: ipyparallel's, which ends with the kernel."""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from hpcdl.cluster import lifeline
from hpcdl.cluster.engine_sets import JOB_FILE
from hpcdl.cluster.ports import HeldPorts
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


def end_with_heart_monitor(controller: Any) -> None:
    """End this process if `controller`'s process that counts heartbeats has ended and engines wait for it."""
    while True:
        time.sleep(0.2)
        monitor: Any = getattr(controller, "heartmonitor_process", None)
        if monitor is None or monitor.pid is None or monitor.is_alive():
            continue
        if not controller.hub.engines or controller.hub.incoming_registrations:
            print("the process that counts heartbeats has ended, so no engine can come up", flush=True)
            os._exit(1)


if __name__ == "__main__":
    lifeline.hold(clean_up)
    # The process that counts heartbeats is forked.
    os.register_at_fork(after_in_child=functools.partial(lifeline.end_with_parent, os.getpid()))
    os.chdir(os.environ[DIRECTORY])  # ipyparallel imports from here: the notebook's folder may have a select.py
    held = HeldPorts()
    if sys.platform == "linux":  # ipyparallel chooses ports long before it listens on the last of them
        sys.argv.append("--IPController.ports=" + ",".join(str(held.port()) for _ in range(PORTS)))
    from ipyparallel.controller.app import IPController

    application = IPController.instance()
    threading.Thread(target=end_with_heart_monitor, args=(application,), daemon=True).start()
    IPController.launch_instance()
