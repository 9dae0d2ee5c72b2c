"""Profiles of ipyparallel: the settings file that says how engines start on a cluster of machines."""

from pathlib import Path

from hpcdl.cluster.diagnosis import ClusterError
from hpcdl.cluster.engine_sets import MpiexecEngines, SlurmEngines
from hpcdl.cluster.launcher import Launcher

STARTERS = {
    "slurm": """# Engines as a job of Slurm: Cluster(n=8, profile="slurm"). Lines that begin with # are examples.
c = get_config()  # noqa: F821
c.Cluster.engine_launcher_class = "slurm"
# c.SlurmEngineSetLauncher.queue = "gpu"  # the partition
# c.SlurmEngineSetLauncher.account = "project"
# c.SlurmEngineSetLauncher.timelimit = "01:00:00"
# A job script of your own, with modules or GPUs, takes the place of ours; options above then go into it by hand:
# c.SlurmEngineSetLauncher.batch_template = \"\"\"#!/bin/sh
# #SBATCH --export=ALL --ntasks={n} --gpus-per-task=1 --output={output_file}
# module load python
# exec {mpiexec} -n {n} {program_and_args}
# \"\"\"
""",
    "ssh": """# Engines on other machines: Cluster(n=4, profile="ssh"). mpiexec reaches them with ssh keys.
# The machines share this folder, the notebook's folder, and Python at the same path.
c = get_config()  # noqa: F821
c.Cluster.engine_launcher_class = "mpi"
c.MPILauncher.mpi_args = ["-hosts", "localhost", "-launcher", "ssh"]  # for example "-hosts", "node1,node2"
""",
}


def from_profile(name: str, n: int, mpiexec: Launcher):
    """Return the engines of ipyparallel's profile `name`, and the folder shared by their machines.

    Raises ClusterError if there is no such profile, or its launcher cannot start one MPI world.
    """
    import ipyparallel
    from ipyparallel.cluster import launcher

    settings = ipyparallel.Cluster(profile=name, load_profile=True)
    folder = Path(settings.profile_dir)
    if not (folder / "ipcluster_config.py").exists():
        raise ClusterError(f"there is no profile {name!r} in {folder}\nrun: hpcdl cluster --profile {name}")
    kind = settings.engine_launcher_class
    if issubclass(kind, launcher.SlurmEngineSetLauncher):
        return SlurmEngines(n, mpiexec, kind, settings.config), folder
    if issubclass(kind, launcher.MPIEngineSetLauncher):
        return MpiexecEngines(n, mpiexec, tuple(kind(config=settings.config).mpi_args)), folder
    raise ClusterError(
        f"profile {name!r} starts engines with {kind.__name__}, which makes each an MPI world of its own; "
        f"in {folder / 'ipcluster_config.py'} set c.Cluster.engine_launcher_class to 'mpi' or 'slurm'"
    )


def write_profile(name: str) -> Path:
    """Return the settings file of profile `name`; write it from our starter ("slurm", "ssh") if it does not exist."""
    import ipyparallel

    file = Path(ipyparallel.Cluster(profile=name, load_profile=False).profile_dir) / "ipcluster_config.py"
    if not file.exists():
        if name not in STARTERS:
            raise ClusterError(f"there is no profile {name!r} in {file.parent}; hpcdl can write {', '.join(STARTERS)}")
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(STARTERS[name])
    return file
