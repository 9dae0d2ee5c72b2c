"""How the engines of a cluster start and end: mpiexec here or over ssh, or a job of Slurm."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hpcdl.cluster import lifeline
from hpcdl.cluster.diagnosis import ClusterError
from hpcdl.cluster.launcher import Launcher, mismatch
from hpcdl.cluster.processes import FROM_LIBRARIES, end, environment, start, until
from hpcdl.machine import cores

UNDER_SHELL = ("/bin/sh", str(Path(__file__).with_name("engine.sh")))
STAND_IN = (sys.executable, "-I", "-S", str(Path(__file__).with_name("stand_in.py")))
ENGINE = (
    *(*UNDER_SHELL, *STAND_IN),
    *(*FROM_LIBRARIES, "hpcdl.cluster.engine", "--mpi", "--IPEngine.enable_nanny=False"),
)
# Slurm's reasons why a job would wait forever, without "Resources": other jobs may only be using the nodes.
HOPELESS = ("PartitionNodeLimit", "PartitionConfig", "BadConstraints", "PartitionTimeLimit")
# Ranks on one machine communicate through its memory, and listen only on the loopback device.
LOOPBACK = {"UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo"} if sys.platform == "linux" else {}
NO_TCP = {"OMPI_MCA_btl": "^tcp"}  # Open MPI's ranks
FOLDERS = ("PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_orte_tmpdir_base")  # where Open MPI 5 and 4 put a run's files
CERTAIN = 3  # consecutive answers: a new controller gives such a reason for a moment
JOB_FILE = "slurm-job"  # in the cluster's directory: the job's number, for processes that outlive the kernel


class MpiexecEngines:
    """`n` engines that `mpiexec` starts on this machine, or where its `options` say (`-hosts a,b`: over ssh)."""

    patience = 60  # if starting takes longer, the machine has another problem

    def __init__(self, n: int, mpiexec: Launcher, options: tuple[str, ...] = ()):
        self.n, self.mpiexec, self.options = n, mpiexec, options
        self.elsewhere = bool(options)  # then some engines may run on other machines
        self.forked = sys.platform == "linux" and mpiexec.kind == "MPICH" and not self.elsewhere
        threads = str(max(1, cores() // n))
        self.variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        self.process: subprocess.Popen | None = None

    def __str__(self):
        return str(self.mpiexec)

    def start(self, directory: Path) -> None:
        options = self.options if self.elsewhere else tuple(self.mpiexec.options_here)
        here = {} if self.elsewhere else LOOPBACK | NO_TCP | dict.fromkeys(FOLDERS, str(directory))
        self.lease = lifeline.lease(directory)
        self.process = start(
            "engines",
            directory,
            [*UNDER_SHELL, "--launcher"],
            [str(self.mpiexec.path), *self.mpiexec.options, *options, "-n", str(self.n)],
            [*ENGINE, f"--profile-dir={directory}"],
            job=self.elsewhere,
            **self.variables,
            **here,
            **lifeline.holding(self.lease),
        )

    def confirm(self) -> None:
        """Note that all engines are up: from now on the notebook handles dying engines."""
        lifeline.confirm(self.lease)

    def why_ended(self) -> str | None:
        """Say why engines ended by themselves; None while they may still start."""
        assert self.process is not None  # called only after `start`
        if self.process.poll() is None:
            return None
        return "\n".join(filter(None, [mismatch(self.mpiexec), f"{self} ended before the engines were up"]))

    def stop(self) -> None:
        if self.process is not None:
            self.lease.unlink(missing_ok=True)
            end(self.process)
            self.process = None


class SlurmEngines:
    """`n` engines as one job of Slurm, submitted by ipyparallel's launcher with the settings of a profile."""

    patience = 3600  # a job may queue
    elsewhere, forked = True, False
    # In the job mpiexec finds Slurm's nodes by itself. The engines take the cores that Slurm gives to a task.
    template = """#!/bin/sh
#SBATCH --export=ALL
#SBATCH --job-name=hpcdl
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}} MKL_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}}
exec {mpiexec} -n {n} {program_and_args}
"""

    def __init__(self, n: int, mpiexec: Launcher, launcher_class: Any, config: Any):
        self.n, self.mpiexec, self.launcher_class, self.config = n, mpiexec, launcher_class, config
        self.job: Any = None  # ipyparallel's launcher, once submitted
        self._asked, self._state, self._hopeless = 0.0, "", 0

    def __str__(self):
        return f"{self.mpiexec} in Slurm's job {self.job.job_id if self.job else '(none yet)'}"

    def start(self, directory: Path) -> None:
        self.lease = lifeline.lease(directory)
        job = self.launcher_class(
            config=self.config,
            work_dir=str(directory),
            profile_dir=str(directory),
            output_file=str(directory / "engines.log"),
            engine_cmd=[*ENGINE],
            engine_args=[f"--profile-dir={directory}"],
            environment=environment(directory) | lifeline.holding(self.lease),
        )
        job.default_template = self.template
        job.namespace = {**job.namespace, "mpiexec": " ".join([str(self.mpiexec.path), *self.mpiexec.options])}
        try:
            job.start(self.n)
        except (OSError, subprocess.SubprocessError) as error:
            raise ClusterError(f"Slurm did not take the job {job.batch_file}: {error}") from error
        self.job = job
        (directory / JOB_FILE).write_text(f"{job.job_id}")

    def confirm(self) -> None:
        """Note that all engines are up: from now on the notebook handles dying engines."""
        lifeline.confirm(self.lease)

    def state(self) -> str:
        """Return Slurm's state of the job ("PENDING (Resources)", "RUNNING (None)"), empty when it is over."""
        asked = subprocess.run(
            ["squeue", "--noheader", f"--jobs={self.job.job_id}", "--format=%T (%r)"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return asked.stdout.strip()

    def why_ended(self) -> str | None:
        """Say why a job ended by itself; None while its engines may still start."""
        if time.monotonic() < self._asked + 1:  # queries to Slurm's controller are expensive
            return None
        self._asked, before, self._state = time.monotonic(), self._state, self.state()
        if self._state.startswith("PENDING") and self._state not in (before, "PENDING (None)"):
            print(f"Slurm's job {self.job.job_id} waits: {self._state}")
        hopeless = self._state.startswith("PENDING") and any(reason in self._state for reason in HOPELESS)
        self._hopeless = self._hopeless + 1 if hopeless else 0
        if self._hopeless >= CERTAIN:
            why = f"its partition cannot give {self.n} engines a core each; take fewer"
            if "PartitionTimeLimit" in self._state:
                why = "it asks for more time than its partition allows (sinfo -o '%P %l'); ask for less by `timelimit`"
            return (
                f"Slurm would let job {self.job.job_id} wait forever, {self._state}: {why}, or name another partition "
                "in ipcluster_config.py"
            )
        return None if self._state else f"{self} ended before the engines were up"

    def stop(self) -> None:
        """Let the engines end by themselves, so that they clean up on their nodes, then cancel the job."""
        if self.job is None:
            return
        self.lease.unlink(missing_ok=True)
        if self.state().startswith("RUNNING"):
            self._wait_for_end(3)
        if self.state():
            with contextlib.suppress(subprocess.CalledProcessError):  # it has already ended
                self.job.stop()
            self._wait_for_end(40)  # Slurm itself gives processes 30 s to end
        self.job = None

    def _wait_for_end(self, seconds: float) -> None:
        for _ in until(seconds, pause=0.1):
            if not self.state():
                break
