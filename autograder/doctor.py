"""What walls students' code in on this system, and whether that holds: what `autograder doctor` shows."""

from autograder.sessions import canaries
from autograder.sessions.canaries import AttackOutcome
from autograder.walls import landlock, namespaces, sandbox, syscalls
from autograder.walls.zygote import Zygote
from hpcdl.cluster.launcher import LauncherError


def needs() -> dict[str, bool]:
    """What the tiers are made of, and whether it is there."""
    return {
        f"Landlock (version {landlock.version()})": landlock.version() > 0,
        "seccomp (pip install pyseccomp)": syscalls.available(),
        "user namespaces (a container needs to allow them)": namespaces.available(),
        "a spare user id (for root, where Python's files are open to all)": bool(sandbox.spare_uid()),
    }


def attack() -> list[AttackOutcome]:
    """What came of all attacks from a worker of the tier that this system has, and from a rank of a real MPI."""
    with Zygote() as zygote:
        return [*canaries.attack(zygote), from_a_rank(zygote)]


def from_a_rank(zygote: Zygote) -> AttackOutcome:
    """All of them from a rank of a real MPI, in one finding; where there is no MPI there is nothing to wall in."""
    title = "do any of this from a rank of a real MPI"
    try:
        broken = [finding.title for finding in canaries.attack(zygote, mpi=True) if not finding.held]
    except LauncherError as error:
        return AttackOutcome(title, True, f"not tried: {error}")
    return AttackOutcome(title, not broken, f"it can: {', '.join(broken)}" if broken else "refused, all of it")
