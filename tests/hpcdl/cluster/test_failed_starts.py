"""A start that fails, or ends early, is one sentence, and leaves no process and no folder."""

import os
import re
import subprocess
import sys
import time
import uuid

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(200)]
PROGRAM = """
import os, signal, subprocess, sys, threading, time
from pathlib import Path
from hpcdl.cluster import Cluster, ClusterError, cluster, engine_sets, launcher, processes

def later(f, *arguments):
    threading.Timer(1.5, f, arguments).start()

def mpiexec(script, version="HYDRA build details:\\\\n Version: 5.0.2\\\\n"):
    path = Path(os.environ["JUPYTER_RUNTIME_DIR"]).with_name("mpiexec")
    path.write_text('#!/bin/sh\\ncase "$1" in --version) printf "%s"; exit;; esac\\n' % version + script)
    path.chmod(0o755)
    return path

def controller(code):
    start = processes.start
    def started(name, directory, *command, **more):
        if name == "controller":
            command = ([sys.executable, "-c", code, f"--profile-dir={directory}"],)
        return start(name, directory, *command, **more)
    processes.start = started

engine_sets.MpiexecEngines.patience = 6
cluster.FIRST_ERROR = 3
path, n = None, 2
{setup}
try:
    Cluster(n, mpiexec=path).start()
except ClusterError as error:
    print("ClusterError:", error)
except KeyboardInterrupt as error:
    print("KeyboardInterrupt:", error)
"""
HANG = "exec sleep 300"
KERNEL = "later(os.kill, os.getpid(), signal.{})"
KINDS = {
    "mpiexec fails": ("path = mpiexec('echo it broke; exit 3')", "ended before the engines were up\nit broke"),
    "mpiexec hangs": (f"path = mpiexec('{HANG}')", "0 of 2 engines started within 6 s"),
    "mpiexec complains": (f"path = mpiexec('echo error: no nodes; {HANG}')", "within 3 s; .* said: error: no nodes"),
    "mpiexec is killed": ("path = mpiexec('kill -9 $$')", "ended before the engines were up"),
    "mpiexec ignores SIGTERM": (f"path = mpiexec('trap \"\" TERM HUP INT; {HANG}')", "0 of 2 engines started"),
    "mpiexec starts a group": (f"path = mpiexec('setsid sleep 300 & {HANG}')", "0 of 2 engines started"),
    "mpiexec is of another MPI": (
        "engine_sets.MpiexecEngines.patience = 60\n"
        """path = mpiexec('while [ "$1" != /bin/sh ]; do shift; done; "$@" & exec "$@"', "mpirun (Open MPI) 4.1")""",
        "the engines do not know of each other: mpi4py uses MPICH.*started by .*mpirun .Open MPI. 4.1",
    ),
    "an engine fails": ("engine_sets.ENGINE = ('/bin/sh', '-c', 'exit 3')", "ended before the engines were up"),
    "engines hang": (f"engine_sets.ENGINE = ('/bin/sh', '-c', '{HANG}')", "0 of 2 engines started within 6 s"),
    "engines ignore SIGTERM": (
        f"""engine_sets.ENGINE = ('/bin/sh', '-c', 'trap "" TERM HUP INT; {HANG}')""",
        "0 of 2 engines started within 6 s",
    ),
    "one engine hangs": (
        f"engine_sets.ENGINE = ('/bin/sh', '-c', '[ $PMI_RANK = 0 ] || {HANG}; exec \"$@\"', 'sh', "
        "*engine_sets.ENGINE)",
        "of 2 engines started within 6 s",
    ),
    "one engine is killed": (
        "engine_sets.ENGINE = ('/bin/sh', '-c', '[ $PMI_RANK = 0 ] || kill -9 $$; exec \"$@\"', 'sh', "
        "*engine_sets.ENGINE)",
        "of 2 engines started|ended before the engines were up",
    ),
    "the controller fails": ("controller('raise SystemExit(\"it broke\")')", "the controller did not start:\nit broke"),
    "the controller hangs": (
        "processes.START_SECONDS = 3; controller('import time; time.sleep(300)')",
        "the controller did not start",
    ),
    "the controller listens nowhere": ("import ipyparallel.client.client as c; c.Client._connect = 1", "cannot start"),
    "heartbeats are not counted": (
        "controller('import runpy, ipyparallel.controller.app as app; app.start_heartmonitor = 1; "
        'runpy.run_module("hpcdl.cluster.controller", run_name="__main__")\')',
        "starts again: the process that counts heartbeats has ended.*Error: the controller has ended:.*not callable",
    ),
    "the folder vanishes": (
        "engine_sets.MpiexecEngines.patience = 60  # longer than the watchdog's five seconds\n"
        f"engine_sets.ENGINE = ('/bin/sh', '-c', 'sleep 1; rm -rf \"$JUPYTER_RUNTIME_DIR\"; {HANG}')",
        "ended before the engines were up|cannot start|did not start",
    ),
    "few open files": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        "may open only 64 files here, and engines need 256: run ulimit -n 256 first",
    ),
    "the kernel is stopped": (KERNEL.format("SIGINT"), "KeyboardInterrupt: You stopped the start of the engines"),
    "the kernel is killed": (KERNEL.format("SIGKILL"), ""),
    "the kernel is killed, mpiexec hangs": (f"path = mpiexec('{HANG}'); {KERNEL.format('SIGKILL')}", ""),
    "the kernel is killed, engines hang": (
        f"engine_sets.ENGINE = (*engine_sets.ENGINE[:2], '/bin/sh', '-c', '{HANG}'); {KERNEL.format('SIGKILL')}",
        "",
    ),
    "the kernel ends": (KERNEL.format("SIGTERM"), ""),
    "the kernel exits": ("later(os._exit, 1)", ""),
}
MARK = "HPCDL_TEST_MARK"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the environment of processes")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_survives_a_failed_start(kind, left, tmp_path):
    setup, said = KINDS[kind]
    runtime, mark = tmp_path / "runtime", uuid.uuid4().hex
    program = PROGRAM.replace("{setup}", setup)
    environment = os.environ | {MARK: mark, "JUPYTER_RUNTIME_DIR": str(runtime)}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, env=environment
    )
    assert_said(ended, said)
    deadline = time.monotonic() + 30  # the watchdog waits for five seconds
    while (processes := left(mark)) or list(runtime.glob("hpcdl-*")):
        assert time.monotonic() < deadline, (processes, list(runtime.glob("hpcdl-*")))
        time.sleep(0.2)


def assert_said(ended, said: str) -> None:
    shown = ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr, shown
    assert re.search(said, shown, re.DOTALL), shown
