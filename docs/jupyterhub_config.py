"""JupyterHub for a class on one machine: `jupyterhub -f docs/jupyterhub_config.py`. Adapt what stands in capitals."""

import os
import shutil
from pathlib import Path

import hpcdl

c = get_config()  # noqa: F821 - JupyterHub gives it

CORES = 2  # of each student: engines and torch's threads follow from it
GIGABYTES = 4  # of each of a student's processes
ADMINS = {"teacher"}

c.JupyterHub.bind_url = os.environ.get("HPCDL_HUB_URL", "http://:8000")
c.Authenticator.admin_users = ADMINS
c.Authenticator.allow_all = True  # everyone with an account on this machine (PAM)
c.Spawner.default_url = "/lab/tree/map.ipynb"
c.Spawner.notebook_dir = "~/labs"
OURS = str(Path(hpcdl.__file__).parent / "jupyter")  # the labs' settings and their kernel
c.Spawner.environment = {"JUPYTER_CONFIG_PATH": OURS, "JUPYTER_PATH": OURS}
c.Spawner.start_timeout = 60


def _labs(spawner) -> None:
    """A student's own copy of the labs, made once: nothing of it is ever overwritten."""
    home = Path(spawner.user_env({"HOME": "."})["HOME"])
    if not (home / "labs").exists():
        shutil.copytree(LABS, home / "labs", ignore=shutil.ignore_patterns("source"))
        owner = home.stat()
        for path in [home / "labs", *(home / "labs").rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid)


def _own_cores(spawner) -> None:
    """The next CORES cores, round the machine: `taskset` holds for kernels and engines too."""
    usable = sorted(os.sched_getaffinity(0))
    first = CORES * (spawner.user.id - 1)
    mine = ",".join(str(usable[(first + i) % len(usable)]) for i in range(min(CORES, len(usable))))
    spawner.cmd = ["taskset", "-c", mine, "prlimit", f"--data={GIGABYTES << 30}", "jupyterhub-singleuser"]


def _prepare(spawner) -> None:
    _labs(spawner)
    _own_cores(spawner)


LABS = Path(hpcdl.__file__).resolve().parent.parent / "labs"
c.Spawner.pre_spawn_hook = _prepare
