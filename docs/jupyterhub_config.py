"""JupyterHub for a class on one machine: `jupyterhub -f jupyterhub_config.py`. Adapt the names in capitals."""

import os
import pwd
import shutil
import stat
import sys
from pathlib import Path

import hpcdl
from hpcdl import labs

c = get_config()  # noqa: F821 - JupyterHub gives it


def _has_account(name: str) -> bool:
    """Whether the machine has an account `name`; the hub would end with a traceback at an administrator without one."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        print(f"jupyterhub_config.py: no account {name!r} here: nobody administers the hub (adduser {name})")
        return False
    return True


def _others_may(path: Path, bits: int) -> bool:
    """Whether every account may use `path`: its folders can be entered, and it has the permission `bits`."""
    path = path.resolve()
    return bool(path.stat().st_mode & bits) and all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


if not _others_may(Path(sys.executable), stat.S_IXOTH):
    print(f"jupyterhub_config.py: students cannot run {sys.executable}: take a Python outside of your home folder")
if (Path(hpcdl.__file__).resolve().parents[1] / "labs" / "source").is_dir():
    print("jupyterhub_config.py: this is a clone, which has the solutions: give students an installed wheel")

CORES = 2  # of each student: engines and torch's threads follow from it
GIGABYTES = 4  # of each of a student's processes
PROCESSES = 1000  # and threads of a student, all together: four engines, their controller and a kernel have 200
ADMINS = {"teacher"}
IDLE_SECONDS = 3600  # after which a student's server and kernels without work end: each holds up to a gigabyte

c.JupyterHub.bind_url = os.environ.get("HPCDL_HUB_URL", "http://:8000")
c.Authenticator.admin_users = {name for name in ADMINS if _has_account(name)}
c.Authenticator.allow_all = True  # everyone with an account on this machine (PAM)
c.Spawner.default_url = "/lab/tree/map.ipynb"
c.Spawner.notebook_dir = "~/labs"
OURS = str(Path(hpcdl.__file__).parent / "jupyter")  # the labs' settings and their kernel
c.Spawner.environment = {"JUPYTER_CONFIG_PATH": OURS, "JUPYTER_PATH": OURS}
c.Spawner.start_timeout = c.Spawner.http_timeout = 180  # seconds: a whole class signs in within a minute
c.Spawner.args = [
    f"--MappingKernelManager.cull_idle_timeout={IDLE_SECONDS}",  # a kernel at work, as in a training, is not idle
    "--MappingKernelManager.cull_connected=True",  # also where its page is left open
    f"--MappingKernelManager.cull_interval={IDLE_SECONDS // 12}",
    f"--ServerApp.shutdown_no_activity_timeout={IDLE_SECONDS}",
]


def _labs(spawner) -> None:
    """A student's own copy of the labs, made once: nothing of it is ever overwritten."""
    home = Path(spawner.user_env({"HOME": "."})["HOME"])
    if not (home / "labs").exists():
        shutil.copytree(labs.shipped(), home / "labs", ignore=shutil.ignore_patterns("source"))
        (home / "labs").chmod(0o700)  # for their owner alone
        owner = home.stat()
        for path in [home / "labs", *(home / "labs").rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid)


def _own_cores(spawner) -> None:
    """The next CORES cores, round the machine: `taskset` holds for kernels and engines too."""
    usable = sorted(os.sched_getaffinity(0))
    first = CORES * (spawner.user.id - 1)
    mine = ",".join(str(usable[(first + i) % len(usable)]) for i in range(min(CORES, len(usable))))
    limits = [f"--data={GIGABYTES << 30}", f"--nproc={PROCESSES}"]
    spawner.cmd = ["taskset", "-c", mine, "prlimit", *limits, "jupyterhub-singleuser"]


def _prepare(spawner) -> None:
    _labs(spawner)
    _own_cores(spawner)


c.Spawner.pre_spawn_hook = _prepare
