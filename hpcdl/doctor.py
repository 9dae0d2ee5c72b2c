"""Report what this machine can do for the course, one line each, and what to install for more.

A probe looks at one thing and returns a `Finding`; none of them changes anything, and each has a time limit.
"""

import importlib.util
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcdl.comm import Communicator

from hpcdl.machine import cores

PIP = f"{sys.executable} -m pip install"

MARKS = {"ok": ("✓", "green"), "limited": ("!", "yellow"), "missing": ("✗", "red"), "absent": ("·", "dim")}

ENOUGH_MEMORY_GB = 2.0  # the promise to visitors on Binder: every lab works in 2 GB


@dataclass(frozen=True)
class Finding:
    """A probe's result: `ok`, `limited` (the course works, with less), `missing` (a lab cannot run), or `absent`.

    Whatever is absent is optional, and no lab is limited without it.
    """

    name: str
    state: str
    detail: str
    advice: str = ""


def probes(engines: bool = True) -> list[tuple[str, Callable[[], Finding]]]:
    """Return the probes in the order of the report; `engines=False` skips the one that takes seconds."""
    every = [
        ("Python", python),
        ("torch", torch),
        ("JupyterLab", jupyterlab),
        ("MPI launcher", launcher),
        ("engines", start_engines),
        ("GPU", gpu),
        ("Triton", triton),
        ("DeepSpeed", deepspeed),
        ("Ray", ray),
        ("memory", memory),
        ("sandbox", sandbox),
    ]
    return [(name, probe) for name, probe in every if engines or probe is not start_engines]


def examine(engines: bool = True) -> list[Finding]:
    """Return all findings; a probe that fails becomes a finding."""
    return [_run(name, probe) for name, probe in probes(engines)]


def show(named: Iterable[tuple[str, Callable[[], Finding]]]) -> list[Finding]:
    """Run the probes one after another, and print each result at once."""
    from rich.console import Console

    console, findings = Console(highlight=False), []
    for name, probe in named:
        with console.status(f"looking at {name} ..."):
            findings.append(_run(name, probe))
        console.print(_line(findings[-1]))
    return findings


def _line(finding: Finding):
    """Format one finding in columns, so that a long sentence wraps under itself."""
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 1))
    line.add_column(width=1)
    line.add_column(width=13)
    line.add_column(ratio=1)
    line.add_row(Text(*MARKS[finding.state]), Text(finding.name, "bold"), Text(finding.detail))
    if finding.advice:
        line.add_row("", "", Text(f"→ {finding.advice}", "cyan"))
    return line


def _run(name: str, probe: Callable[[], Finding]) -> Finding:
    try:
        return probe()
    except Exception as error:  # a probe must never end the report
        detail = f"could not be looked at: {type(error).__name__}: {error}"
        return Finding(name, "missing", detail, "this line's part of the course will not work; see the reason")


# ------------------------------------------------------------------------------------------------ probes


def python() -> Finding:
    version, where = platform.python_version(), sys.prefix
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding("Python", "ok", f"{version} in {where}")
    return Finding("Python", "limited", f"{version}; tested are 3.11 to 3.13", "make .venv with a tested Python")


def torch() -> Finding:
    import torch

    return Finding("torch", "ok", f"{torch.__version__}, {cores()} cores, {torch.get_num_threads()} threads")


def jupyterlab() -> Finding:
    from importlib.metadata import version

    return Finding("JupyterLab", "ok", f"{version('jupyterlab')} with ipywidgets {version('ipywidgets')}")


def launcher() -> Finding:
    from hpcdl.cluster.launcher import LauncherError, find_launcher, mismatch

    try:
        found = find_launcher()
    except LauncherError as error:
        detail, _, advice = str(error).partition("\n")
        return Finding("MPI launcher", "missing", detail, advice.strip())
    if wrong := mismatch(found):
        detail, _, advice = wrong.partition("; ")
        return Finding("MPI launcher", "missing", detail, advice)
    return Finding("MPI launcher", "ok", f"{found.path} is of the MPI that mpi4py loads ({found.mpi})")


def start_engines() -> Finding:
    import time

    from hpcdl.cluster import Cluster

    begin = time.perf_counter()
    with Cluster(n=2) as cluster:
        ready = time.perf_counter() - begin
        sums = cluster.run(_sum_of_ranks, timeout=20)
    if sums != [1.0, 1.0]:
        advice = "the engines do not see each other: `mpiexec` is of another MPI than mpi4py"
        return Finding("engines", "missing", f"two engines summed their ranks to {sums}", advice)
    return Finding("engines", "ok", f"two engines were ready after {ready:.1f} s and summed over MPI")


def _sum_of_ranks(comm: "Communicator") -> float:
    import torch

    x = torch.tensor([float(comm.rank)])
    comm.all_reduce(x)
    return x.item()


def gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Finding("GPU", "ok", ", ".join(names))
    return Finding("GPU", "limited", "none; every lab works on the CPU", "with an NVIDIA card: a CUDA build of torch")


def triton() -> Finding:
    if importlib.util.find_spec("triton") is None:
        from hpcdl.kernels.advice import TRITON

        advice = f"Linux: {PIP} {TRITON} (its interpreter runs the GPU kernels without a GPU)"
        return Finding("Triton", "limited", "not installed; only the exercises with GPU kernels need it", advice)
    from importlib.metadata import version

    import torch

    how = "compiled for the GPU" if torch.cuda.is_available() else "by its interpreter, on the CPU"
    return Finding("Triton", "ok", f"{version('triton')}: kernels run {how}")


def deepspeed() -> Finding:
    return _optional("DeepSpeed")


def ray() -> Finding:
    return _optional("Ray")


def _optional(name: str) -> Finding:
    """Look for the packages that lab `frameworks` mentions; no exercise needs them."""
    from hpcdl.training import optional

    version = optional.found(name)
    if version is None:
        return Finding(name, "absent", "not installed; no lab needs it", f"to try it: {optional.advice(name, PIP)}")
    return Finding(name, "ok", f"{version}; no lab needs it")


def memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    if free >= ENOUGH_MEMORY_GB:
        return Finding("memory", "ok", f"{free:.1f} GB free")
    advice = "close other programs and notebooks; start two engines instead of four"
    return Finding("memory", "limited", f"{free:.1f} GB free; four engines with torch want 1 to 2 GB", advice)


def sandbox() -> Finding:
    """Look for the sandbox. Only instructors need it; the autograder's own doctor tries the walls with attacks."""
    if sys.platform != "linux":
        return Finding("sandbox", "limited", "weak: a child process and a clock", "grade other people's code on Linux")
    return Finding("sandbox", "ok", "only for grading: `autograder doctor` says how strong it is here, and proves it")
