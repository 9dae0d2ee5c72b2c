"""Find the mpiexec of the MPI that mpi4py loads. Any other would start p processes that are each a single rank."""

import contextlib
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hpcdl.cluster.diagnosis import ClusterError

LONGEST_NAME = 63  # letters of a machine's name
JOB = (
    *("SLURM_", "SRUN_", "SBATCH_", "PMI_", "PMIX_", "PMI2_", "OMPI_", "ORTE_", "PRTE_", "PBS_", "LSB_", "LOADL_"),
    *("COBALT_", "PE_HOSTFILE", "HYDRA_", "HYDI_", "MPIEXEC_", "MPI_LOCAL"),
)
KEPT = ("SLURM_CONF",)  # how to reach Slurm, not this job's identity
MEND = "pip install --force-reinstall mpich mpi4py"


class LauncherError(ClusterError):
    """There is no mpiexec; the second line says what to do."""


@dataclass(frozen=True)
class Launcher:
    """An mpiexec: its path, and the MPI that it reports ("MPICH 5.0.2")."""

    path: Path
    mpi: str

    def __str__(self):
        return f"{self.path} (of {self.mpi})"

    @property
    def options(self) -> list[str]:
        """Return the options that show which rank died: MPICH's mpiexec would end the others first."""
        return ["-disable-auto-cleanup"] if self.mpi.startswith("MPICH") else []

    @property
    def options_here(self) -> list[str]:
        """Return more options, to start all ranks on this machine inside any job or cluster."""
        if not self.mpi.startswith("MPICH"):
            return []
        return ["-launcher", "fork", "-rmk", "user", "-localhost", "127.0.0.1"]

    def check_host_name(self, name: str) -> None:
        """Raise LauncherError if MPICH cannot read this machine's name."""
        if self.mpi.startswith("MPICH") and len(name) > LONGEST_NAME:
            raise LauncherError(
                f"this machine's name has {len(name)} letters ({name}), and {self.mpi} reads at most {LONGEST_NAME}; "
                "give the machine or the container a shorter name"
            )


def without_job(variables: Mapping[str, str]) -> dict[str, str]:
    """Return `variables` without the ones that Slurm, PBS, LSF or another MPI sets to tell programs where they run."""
    return {name: value for name, value in variables.items() if name in KEPT or not name.startswith(JOB)}


def find_launcher() -> Launcher:
    """Return the mpich wheel's mpiexec, else the one next to this Python, else the first on the PATH; raise
    LauncherError if none."""
    candidates = [*_of_the_wheel(), Path(sysconfig.get_path("scripts")) / "mpiexec", *_on_the_path()]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return launcher_at(candidate)
    places = ", ".join(dict.fromkeys(str(candidate.parent) for candidate in candidates))
    raise LauncherError(
        f"no mpiexec was found, neither in {places} nor on the PATH; engines cannot start without it\nrun: {MEND}"
    )


def launcher_at(path: str | Path) -> Launcher:
    """Return the mpiexec at `path`, with the version that it reports."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LauncherError(f"{path} cannot be used as mpiexec: {error}\nrun: {MEND}") from error
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    if lines and lines[0].startswith("HYDRA"):
        return Launcher(Path(path), f"MPICH {lines[1].removeprefix('Version: ')}")
    return Launcher(Path(path), lines[0] if lines else "an MPI that does not tell its version")


def _of_the_wheel() -> list[Path]:
    with contextlib.suppress(metadata.PackageNotFoundError):
        files = metadata.files("mpich") or ()
        return [Path(file.locate()).resolve() for file in files if file.name in ("mpiexec", "mpiexec.exe")]
    return []


def _on_the_path() -> list[Path]:
    found = shutil.which("mpiexec")
    return [Path(found)] if found else []
