"""Describe this machine, and how much of it this process may use."""

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path("/")


def processor() -> str:
    """Return the processor's name from Linux, or elsewhere from Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def cores(root: Path = ROOT) -> int:
    """Return how many whole cores this process may use, at least 1, by its affinity and its container's quota.

    The quota comes from its control groups, version 1 or 2, whose files are under `root`.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([usable, *_quotas(root)]))


def waited(process: str = "self") -> float:
    """Return the seconds that a process's threads have waited for a processor so far; 0 if the system does not say."""
    nanoseconds = 0
    for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # a thread may end meanwhile
            nanoseconds += int(file.read_text().split()[1])
    return nanoseconds * 1e-9


class Quiet:
    """Tell whether this process got enough processor time since `Quiet()`; otherwise its measurements are too slow."""

    SHARE = 0.1  # of the time: the limit for the waits of all threads together
    SLICE = 0.05  # seconds on top: one time slice of another program

    def __init__(self, clock: Callable[[], float] = time.monotonic, waited: Callable[[], float] = waited):
        self._clock, self._waited = clock, waited
        self._begin, self._before = clock(), waited()

    def __bool__(self) -> bool:
        return self._waited() - self._before <= self.SLICE + self.SHARE * (self._clock() - self._begin)


def _family() -> list:
    """Return this process and all its children (psutil)."""
    import psutil

    this = psutil.Process()
    return [this, *this.children(recursive=True)]


def waited_together() -> float:
    """Return `waited` for this process and all its children, such as engines."""
    return sum(waited(str(process.pid)) for process in _family())


def others_worked() -> float:
    """Return the processor seconds so far of all programs except this one and its children."""
    import psutil

    every, own = psutil.cpu_times(), 0.0
    for process in _family():
        with contextlib.suppress(psutil.NoSuchProcess):
            own += sum(process.cpu_times()[:4])  # user, system, and both of children that have ended
    return sum(every) - every.idle - getattr(every, "iowait", 0.0) - own


class QuietTogether(Quiet):
    """`Quiet` for this process and its engines. Engines may wait for each other, so other programs must have worked,
    too."""

    OTHERS = 0.25  # of one processor's time: the limit for other programs

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        waited: Callable[[], float] = waited_together,
        others: Callable[[], float] = others_worked,
    ):
        super().__init__(clock, waited)
        self._others, self._worked_before = others, others()

    def __bool__(self) -> bool:
        allowed = self.SLICE + self.OTHERS * (self._clock() - self._begin)
        return super().__bool__() or self._others() - self._worked_before <= allowed


def _quotas(root: Path) -> Iterator[int]:
    """Yield what each control group around this process allows, in whole cores, from the innermost outwards."""
    for mount, group in _groups(root):
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no quota
                microseconds, period = _quota(mount / folder)
                if microseconds > 0:  # version 1 says -1 for none
                    yield microseconds // period


def _groups(root: Path) -> Iterator[tuple[Path, Path]]:
    """Return where control groups for processor time are mounted, and this process's group below that.

    A container may see its group's outer name but have only the group itself mounted: then the mount's root counts.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            names = {"": ("", "unified")}.get(controllers, ("cpu,cpuacct", "cpu"))
            if not controllers or "cpu" in controllers.split(","):
                yield from ((root / "sys/fs/cgroup" / name, Path(group.strip("/"))) for name in names)


def _quota(folder: Path) -> tuple[int, int]:
    """Return the microseconds of processor time, and their period; raise OSError or ValueError without both."""
    if (both := folder / "cpu.max").exists():
        quota, period = both.read_text().split()
    else:
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota), int(period)
