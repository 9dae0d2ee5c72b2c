"""Engines that a profile starts: as a job of a real Slurm, on other hosts, and what is said of a wrong profile."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cloudpickle
import psutil
import pytest

from hpcdl.cluster import Cluster, ClusterError, trial
from hpcdl.cluster.profiles import write_profile

pytestmark = pytest.mark.mpi


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    """A home of its own for ipyparallel's profiles."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    yield tmp_path
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def in_slurm(slurm, profiles, monkeypatch):
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm[name])
    write_profile("slurm")


@pytest.fixture
def no_job_starts(in_slurm):
    """Slurm takes jobs, and lets them wait."""
    name = subprocess.run(["sinfo", "-h", "-o", "%R"], capture_output=True, text=True, timeout=20, check=True)
    partition = ["scontrol", "update", f"PartitionName={name.stdout.split()[0]}"]
    subprocess.run([*partition, "State=DOWN"], timeout=20, check=True)
    yield
    subprocess.run([*partition, "State=UP"], timeout=20, check=True)


def jobs() -> list[str]:
    asked = subprocess.run(["squeue", "-h", "-o", "%j %T"], capture_output=True, text=True, timeout=20, check=True)
    return asked.stdout.split("\n")[:-1]


def who(comm):
    return comm.rank, os.getpid(), os.environ.get("SLURM_JOB_ID")


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.labs  # a real job
def test_slurm_job_survives_a_dead_rank(in_slurm, profiles):
    def die(comm):
        if comm.rank == 1:
            os._exit(3)
        comm.barrier()

    with Cluster(2, profile="slurm") as cluster:
        first = cluster.run(who)
        assert jobs() == ["hpcdl RUNNING"]
        maps = "".join(Path(f"/proc/{pid}/maps").read_text() for _, pid, _ in first)
        mine = {path for path in Path("/dev/shm").glob("mpich*") if str(path) in maps}
        assert mine, "the engines share memory"
        with pytest.raises(ClusterError, match=r"rank 1 died \(os._exit\(3\)\) at .*test_profiles.py"):
            cluster.run(die)
        second = cluster.run(who)
    assert [rank for rank, *_ in first] == [rank for rank, *_ in second] == [0, 1]
    assert first[0][2] == first[1][2] is not None
    assert second[0][2] not in (None, first[0][2]), "the engines were started anew, in a job of their own"
    assert jobs() == []
    assert all(gone(pid) for _, pid, _ in first + second)
    assert not any(path.exists() for path in mine)
    assert not list((profiles / "profile_slurm").glob("hpcdl-cluster-*"))


@pytest.mark.labs  # a job runs in the first tier
def test_a_job_that_waits_in_the_queue_is_said_and_can_be_given_up(no_job_starts, capsys):
    cluster = Cluster(2, profile="slurm")
    cluster._prepare, prepare = lambda: impatient(prepare()), cluster._prepare

    def impatient(processes):
        processes.engines.patience = 6  # Slurm's first reason may be another
        return processes

    with pytest.raises(ClusterError, match="0 of 2 engines started within 6 s"):
        cluster.start()
    assert "waits: PENDING (PartitionDown)" in capsys.readouterr().out
    assert jobs() == []


def test_more_time_than_the_partition_gives_is_said(in_slurm, profiles):
    settings = profiles / "profile_slurm" / "ipcluster_config.py"
    settings.write_text(settings.read_text() + "c.SlurmEngineSetLauncher.timelimit = '30-00'\n")
    with pytest.raises(ClusterError, match=r"PartitionTimeLimit\): it asks for more time than its partition allows"):
        Cluster(2, profile="slurm").start()
    assert jobs() == []


def test_more_engines_than_the_partition_has_cores_is_said_at_once(in_slurm):
    n = 4 * os.cpu_count() + 1  # the partition lets four jobs share a core
    with pytest.raises(ClusterError, match=rf"PartitionConfig\): its partition cannot give {n} engines a core each"):
        Cluster(n, profile="slurm").start()
    assert jobs() == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.labs  # a job runs in the first tier
def test_waiting_job_leaves_with_its_command(no_job_starts, how):
    command = [sys.executable, "-m", "hpcdl", "cluster", "--profile", "slurm", "-n", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while "waits: PENDING" not in process.stdout.readline():
            assert process.poll() is None
        assert jobs() == ["hpcdl PENDING"]
        process.send_signal(how)
        process.communicate(timeout=60)
    deadline = time.monotonic() + 20
    while jobs() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert jobs() == []


@pytest.mark.long
def test_the_command_tries_the_profile_and_says_where_each_rank_runs(in_slurm, profiles):
    command = [sys.executable, "-m", "hpcdl", "cluster", "--profile", "slurm", "-n", "2", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    ranks = json.loads(ended.stdout)["ranks"]
    assert [rank["sum"] for rank in ranks] == [2.0, 2.0]
    assert all(rank["slurm_job"] for rank in ranks)
    assert jobs() == []


KERNEL = """
import time
from hpcdl.cluster import Cluster
cluster = Cluster(2, profile="slurm").start()
print("started", flush=True)
time.sleep(100)
"""


@pytest.mark.labs  # a job ends in the first tier
def test_a_job_ends_with_a_kernel_that_is_killed(in_slurm, profiles):
    kernel = subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True)
    while "started" not in kernel.stdout.readline():  # after what the queue has to say
        assert kernel.poll() is None
    assert jobs() == ["hpcdl RUNNING"]
    kernel.kill()
    kernel.communicate()
    deadline = time.monotonic() + 20
    while (jobs() or list((profiles / "profile_slurm").glob("hpcdl-*"))) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert jobs() == []
    assert not list((profiles / "profile_slurm").glob("hpcdl-*"))


SSH = """#!/bin/sh
# Stands for ssh: `ssh [options] host command ...` runs the command here and notes the host.
while [ "${1#-}" != "$1" ]; do shift; done
echo "$1" >> "$0.hosts"
shift
exec sh -c "$*"
"""


@pytest.mark.labs  # starts engines twice
def test_engines_on_other_hosts_are_started_over_ssh_and_tried(profiles):
    ssh = profiles / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    options = ["-hosts", "one.invalid,two.invalid", "-launcher", "ssh", "-launcher-exec", str(ssh)]
    settings = write_profile("ssh")
    settings.write_text(settings.read_text() + f"c.MPILauncher.mpi_args = {options}\n")
    findings = trial.try_cluster(2, "ssh")
    assert [rank["sum"] for rank in findings["ranks"]] == [2.0, 2.0]
    assert sorted((profiles / "ssh.hosts").read_text().split()) == ["one.invalid", "two.invalid"]
    assert "cluster = Cluster(n=2, profile='ssh').start()" in trial.describe(findings)
    assert not list((profiles / "profile_ssh").glob("hpcdl-cluster-*"))


def test_unusable_profile_is_refused(profiles):
    with pytest.raises(ClusterError, match=r"there is no profile 'slurm' in .*\nrun: hpcdl cluster --profile slurm"):
        Cluster(2, profile="slurm").start()
    with pytest.raises(ClusterError, match=r"no profile 'moon'.*hpcdl can write slurm, ssh"):
        write_profile("moon")
    settings = write_profile("slurm")
    settings.write_text("c = get_config()\nc.Cluster.engine_launcher_class = 'local'\n")
    with pytest.raises(ClusterError, match="LocalEngineSetLauncher, which makes each an MPI world of its own"):
        Cluster(2, profile="slurm").start()
