"""Engines on two hosts without common memory or processes: they compute, fail readably, and run again.

The hosts are namespaces of this machine (`hosts.py`); each has a slurmd, or is reached as by ssh.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.labs, pytest.mark.timeout(500)]
OWN = ("--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PROGRAMS = ("unshare", "nsenter", "ip", "munged", "mungekey", "slurmctld", "slurmd", "sbatch")
DEATHS = {
    "exit": r"^rank 2 died \(os\._exit\(3\)\) at .*on_hosts\.py, line \d+: .*\nranks 0 and 1 stood in barrier",
    "signal": r"^rank 2 died \(its process was killed from outside",
    # Slurm may end all of a job with a node.
    "host": r"^(rank 2|ranks 0 to 2) died \(its process was killed .* last seen at .*on_hosts\.py, line \d+: time\.",
    "host between runs": r"^(rank 2|ranks 0 to 2) died \(its process was killed from outside[^;]*\)\n",
}


@pytest.fixture
def seen(need, tmp_path):
    """`seen(profile, *scenarios)`: the outcome of each scenario and of the run after it."""
    need("slurm", os.geteuid() == 0, "hosts of their own need root")
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    need("slurm", not absent, f"apt-get install slurm-wlm munge util-linux iproute2 (absent: {', '.join(absent)})")
    tried = subprocess.run(["unshare", *OWN, "true"], capture_output=True, text=True, timeout=20)
    if tried.returncode:
        pytest.skip(f"this machine gives no namespaces: {tried.stderr.strip()}")

    def seen(profile: str, *scenarios: str) -> dict:
        for folder in (tmp_path, *tmp_path.parents):  # munged takes no folder that others may write
            if folder.stat().st_uid == 0 and len(folder.parts) > 2:
                folder.chmod(folder.stat().st_mode & ~0o022 | 0o055)
        program = Path(__file__).with_name("hosts.py")
        command = ["unshare", *OWN, sys.executable, str(program), str(tmp_path), profile, *scenarios]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=480, env=os.environ | {"PATH": PATH})
        assert ended.returncode == 0, ended.stdout + ended.stderr[-5000:]
        outcomes = {name: outcome for name, *outcome in map(json.loads, ended.stdout.splitlines())}
        assert outcomes.pop("left")[0] == ["", [], []]  # jobs, folders, engines
        for name, (_, after) in outcomes.items():
            ranks = [(rank, host) for rank, host, _ in after]
            assert ranks == [(0, "node1"), (1, "node1"), (2, "node2")], name
        return {name: outcome for name, (outcome, _) in outcomes.items()}

    return seen


def test_two_hosts_compute_and_report(seen):
    outcomes = seen("slurm", "collectives", "ddp", "deadlock")
    assert outcomes["collectives"] == [[], [], []]
    assert max(outcomes["ddp"]) < 1e-15
    assert "Deadlock: rank 0 waits to receive from rank 2, rank 2 waits to receive from rank 0." in outcomes["deadlock"]


@pytest.mark.long
@pytest.mark.parametrize("profile", ["slurm", "ssh"])
def test_the_next_run_works_after_any_death(seen, profile):
    for name, outcome in seen(profile, *DEATHS).items():
        assert re.search(DEATHS[name], outcome), (name, outcome)
        assert "The engines are started again" in outcome
