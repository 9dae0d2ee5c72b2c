"""Find the mpiexec of the MPI that mpi4py loads. Any other would start p processes that are each a single rank."""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
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
KINDS = {"MPICH": "MPICH", "Open MPI": "Open MPI", "OpenRTE": "Open MPI"}  # the MPI by what it calls itself
AS_ROOT = [] if hasattr(os, "getuid") and os.getuid() else ["--allow-run-as-root"]  # as the notebook
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
    def kind(self) -> str:
        """Return "MPICH", "Open MPI" or, for another, an empty string."""
        return kind(self.mpi)

    @property
    def options(self) -> list[str]:
        """Return the options that show which rank died: MPICH's mpiexec would end the others first."""
        return ["-disable-auto-cleanup"] if self.kind == "MPICH" else []

    @property
    def options_here(self) -> list[str]:
        """Return more options, to start all ranks on this machine inside any job or cluster."""
        return {
            "MPICH": ["-launcher", "fork", "-rmk", "user", "-localhost", "127.0.0.1"],
            "Open MPI": ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", *AS_ROOT],
        }.get(self.kind, [])

    def check_host_name(self, name: str) -> None:
        """Raise LauncherError if MPICH cannot read this machine's name."""
        if self.kind == "MPICH" and len(name) > LONGEST_NAME:
            raise LauncherError(
                f"this machine's name has {len(name)} letters ({name}), and {self.mpi} reads at most {LONGEST_NAME}; "
                "give the machine or the container a shorter name"
            )


def kind(said: str) -> str:
    """Return which MPI calls itself `said`: "MPICH", "Open MPI" or, for another, an empty string."""
    return next((mpi for name, mpi in KINDS.items() if name in said), "")


@functools.cache
def loaded() -> str:
    """Return the version of the MPI that mpi4py loads, or an empty string; another process loads it."""
    code = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=20, check=True
        ).stdout
        return short(said)
    return ""


def short(library: str) -> str:
    """Return the MPI and its version, from all that an MPI library says of itself."""
    return " ".join(library.partition("\n")[0].partition(",")[0].replace("Version:", "").split())


def mismatch(launcher: Launcher) -> str:
    """Say that `launcher` is of another MPI than the one that mpi4py loads, and what to do; empty if it is not."""
    library = loaded()
    if not launcher.kind or kind(library) in ("", launcher.kind):
        return ""
    found, chosen = find_launcher(), [name for name in ("MPI4PY_LIBMPI", "MPI4PY_MPIABI") if name in os.environ]
    use = f"unset {chosen[0]}" if chosen else f"this installs one MPI for both: {MEND}"
    if found.kind == kind(library):
        use = f"use {found}"
    return f"mpi4py loads {library}, and {launcher} starts programs of another MPI; {use}"


def without_job(variables: Mapping[str, str]) -> dict[str, str]:
    """Return `variables` without the ones that Slurm, PBS, LSF or another MPI sets to tell programs where they run."""
    return {name: value for name, value in variables.items() if name in KEPT or not name.startswith(JOB)}


def find_launcher() -> Launcher:
    """Return the mpiexec of the MPI that mpi4py loads; raise LauncherError if there is no mpiexec.

    It looks for the mpich wheel's, then next to this Python, then on the PATH, and takes the first if none fits.
    """
    candidates = [*dict.fromkeys([*_of_the_wheel(), Path(sysconfig.get_path("scripts")) / "mpiexec", *_on_the_path()])]
    usable = [candidate for candidate in candidates if os.access(candidate, os.X_OK)]
    if not usable:
        places = ", ".join(dict.fromkeys(str(candidate.parent) for candidate in candidates))
        raise LauncherError(
            f"no mpiexec was found, neither in {places} nor on the PATH; engines cannot start without it\nrun: {MEND}"
        )
    first = launcher_at(usable[0])
    others = [other for other in map(_tried, usable[1:]) if other and other.kind != first.kind]
    if others and (wanted := kind(loaded())):
        return next((found for found in [first, *others] if found.kind == wanted), first)
    return first


def _tried(path: Path) -> Launcher | None:
    with contextlib.suppress(LauncherError):
        return launcher_at(path)
    return None


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
