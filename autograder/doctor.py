"""Show which walls this system has around students' code, and whether they hold (`autograder doctor`)."""

from autograder.sessions import canaries
from autograder.sessions.canaries import AttackOutcome
from autograder.walls import landlock, namespaces, sandbox, syscalls
from autograder.walls.zygote import Zygote
from hpcdl.cluster.launcher import LauncherError


def needs() -> dict[str, bool]:
    """Return the parts that each tier needs, and whether they are available."""
    return {
        f"Landlock (version {landlock.version()})": landlock.version() > 0,
        "seccomp (pip install pyseccomp)": syscalls.available(),
        "user namespaces (a container needs to allow them)": namespaces.available(),
        "a spare user id (for root, where Python's files are open to all)": bool(sandbox.spare_uid()),
    }


def attack() -> list[AttackOutcome]:
    """Return the results of all attacks from a worker of this system's tier, and from a rank of a real MPI."""
    with Zygote() as zygote:
        return [*canaries.attack(zygote), from_a_rank(zygote)]


def from_a_rank(zygote: Zygote) -> AttackOutcome:
    """Return all attacks from a rank of a real MPI as one finding; without MPI there is nothing to isolate."""
    title = "do any of this from a rank of a real MPI"
    try:
        broken = [finding.title for finding in canaries.attack(zygote, mpi=True) if not finding.held]
    except LauncherError as error:
        return AttackOutcome(title, True, f"not tried: {error}")
    return AttackOutcome(title, not broken, f"it can: {', '.join(broken)}" if broken else "refused, all of it")
