"""A head and two nodes on one machine: each has its own network, name, processes, mounts and shared memory.

    unshare --net --uts --ipc --mount --pid --fork --mount-proc python hosts.py FOLDER PROFILE SCENARIO ...

This process is the head, where the notebook is. With the profile slurm it runs slurmctld, and each node runs a slurmd;
with the profile ssh, `nsenter` stands for ssh. All share FOLDER. The outcome of each scenario and of the run after it
are printed as one line of JSON.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cloudpickle
import on_hosts
import psutil

from hpcdl.cluster import Cluster, ClusterError
from hpcdl.cluster.profiles import write_profile

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.slurm_daemons import SETTINGS

NODES = {"node1": "10.77.0.2", "node2": "10.77.0.3"}
HEAD, BITS = "10.77.0.1", 24
CONF = """
ClusterName=hosts
SlurmctldHost=head({head})
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdTimeout=5
KillWait=2
{settings}{nodes}
PartitionName=test Nodes=node1,node2 Default=YES MaxTime=10 State=UP
"""
# A node has two cores for Slurm, whatever this machine has: three engines need both nodes.
NODE = """
hostname {name}
ip link set lo up
mount -t tmpfs tmpfs /dev/shm
mount --bind {folder}/hosts /etc/hosts
echo up
while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip address add {address}/{bits} dev eth0
ip link set eth0 up
echo connected
{program} >{folder}/{name}.log 2>&1 &
wait
"""
SLURMD = "slurmd -D -f {folder}/slurm.conf"
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter --all --target "$(cat "$(dirname "$0")/$host.pid")" sh -c "$*"
"""
OWN = ("--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")


def sh(*command: str) -> None:
    subprocess.run(command, check=True, timeout=20)


def until(condition, what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)


class Hosts:
    """The head and its nodes."""

    def __init__(self, folder: Path, profile: str):
        self.folder, self.slurm, self.nodes = folder, profile == "slurm", {}
        names = "".join(f"{address} {name}\n" for name, address in [*NODES.items(), ("head", HEAD)])
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        lines = "\n".join(f"NodeName={name} NodeAddr={address} CPUs=2" for name, address in NODES.items())
        (folder / "slurm.conf").write_text(CONF.format(head=HEAD, folder=folder, settings=SETTINGS, nodes=lines))
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        sh("hostname", "head")
        sh("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        sh("mount", "--bind", f"{folder}/hosts", "/etc/hosts")
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "name", "switch", "type", "bridge")
        sh("ip", "address", "add", f"{HEAD}/{BITS}", "dev", "switch")
        sh("ip", "link", "set", "switch", "up")
        self._daemons() if self.slurm else self._ssh()
        for name in NODES:
            self.boot(name)

    def _daemons(self) -> None:
        munge = self.folder / "munge"
        munge.mkdir()
        sh("mungekey", "--create", f"--keyfile={munge}/key")
        files = (
            f"--{what}={munge}/{what.partition('-')[0]}" for what in ("socket", "key-file", "pid-file", "log-file")
        )
        subprocess.Popen(["munged", "--foreground", "--force", *files, f"--seed-file={munge}/seed"])
        until((munge / "socket").exists, "munged")
        with (self.folder / "slurmctld.log").open("w") as log:
            subprocess.Popen(["slurmctld", "-D", "-f", f"{self.folder}/slurm.conf"], stdout=log, stderr=log)

    def _ssh(self) -> None:
        ssh = self.folder / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        options = ["-hosts", "node1:2,node2:1", "-launcher", "ssh", "-launcher-exec", str(ssh)]
        settings = write_profile("ssh")
        settings.write_text(f"{settings.read_text()}c.MPILauncher.mpi_args = {options}\n")

    def boot(self, name: str) -> None:
        """Start a node, and wait until it can be used."""
        program = SLURMD.format(folder=self.folder) if self.slurm else "sleep infinity"
        setup = NODE.format(name=name, address=NODES[name], bits=BITS, folder=self.folder, program=program)
        node = subprocess.Popen(["unshare", *OWN, "sh", "-c", setup], stdout=subprocess.PIPE, text=True)
        assert node.stdout.readline() == "up\n"
        port = f"port-{name}"
        card = f"02:00:00:00:00:0{NODES[name][-1]}"  # it stays: other nodes remember it for half a minute
        link = ["ip", "link", "add", "name", port, "type", "veth", "peer", "name", "eth0", "address", card]
        sh(*link, "netns", str(node.pid))
        sh("ip", "link", "set", port, "master", "switch", "up")
        self.nodes[name] = node
        (first,) = psutil.Process(node.pid).children()
        (self.folder / f"{name}.pid").write_text(f"{first.pid}")
        assert node.stdout.readline() == "connected\n"
        if self.slurm:
            until(lambda: self.ready(name), f"{name} to be idle")

    def lose(self, name: str) -> None:
        """End a node at once, with all its processes and its network, as a power failure does."""
        node = self.nodes.pop(name)
        sh("ip", "link", "delete", f"port-{name}")
        node.kill()  # and with it the first process of its namespace, which takes all others along
        node.wait()

    def ready(self, name: str) -> bool:
        """Whether the node's slurmd listens, and slurmctld would use it; what it says of a lost node is old."""
        said = subprocess.run(["sinfo", "-h", "-n", name, "-o", "%t"], capture_output=True, text=True, timeout=20)
        log = (self.folder / f"{name}.log").read_text()
        return "slurmd started on" in log and said.stdout.strip() in ("idle", "mix", "alloc")


# -- scenarios --------------------------------------------------------------------------------------------------------


def error(cluster, *call, **options) -> str:
    try:
        return f"no error: {cluster.run(*call, **options)}"
    except ClusterError as error:
        return str(error)


def lost_host(cluster, hosts) -> str:
    """The error of a run during which node2 goes; then it comes back."""
    import threading

    started = hosts.folder / "started"

    def lose():
        until(lambda: all(Path(f"{started}-{rank}").exists() for rank in range(3)), "all ranks to run")
        hosts.lose("node2")

    thread = threading.Thread(target=lose)
    thread.start()
    said = error(cluster, on_hosts.waiting, str(started))
    thread.join()
    hosts.boot("node2")
    return said


def lost_between_runs(cluster, hosts) -> str:
    hosts.lose("node2")
    hosts.boot("node2")
    return error(cluster, on_hosts.where)


SCENARIOS = {
    "where": lambda cluster, hosts: cluster.run(on_hosts.where),
    "collectives": lambda cluster, hosts: cluster.run(on_hosts.collectives),
    "ddp": lambda cluster, hosts: cluster.run(on_hosts.ddp),
    "deadlock": lambda cluster, hosts: error(cluster, on_hosts.deadlock),
    "exit": lambda cluster, hosts: error(cluster, on_hosts.ended, 3),
    "signal": lambda cluster, hosts: error(cluster, on_hosts.ended, -signal.SIGKILL),
    "host": lost_host,
    "host between runs": lost_between_runs,
}


def main(folder: Path, profile: str, scenarios: list[str]) -> None:
    os.environ |= {
        "SLURM_CONF": f"{folder}/slurm.conf",
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        "IPYTHONDIR": f"{folder}/ipython",
        "JUPYTER_RUNTIME_DIR": f"{folder}/runtime",
    }
    cloudpickle.register_pickle_by_value(on_hosts)
    hosts = Hosts(folder, profile)
    write_profile(profile)
    with contextlib.redirect_stdout(sys.stderr), Cluster(3, profile=profile) as cluster:
        for name in scenarios:
            outcome = SCENARIOS[name](cluster, hosts)
            print(json.dumps([name, outcome, cluster.run(on_hosts.where)]), file=sys.__stdout__, flush=True)
    jobs = subprocess.run(["squeue", "-h"], capture_output=True, text=True, timeout=20).stdout if hosts.slurm else ""
    files = [path.name for path in (folder / "ipython" / f"profile_{profile}").glob("hpcdl-cluster-*")]
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    engines = [command for command in commands if "hpcdl.cluster" in command]
    print(json.dumps(["left", [jobs, files, engines], None]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
