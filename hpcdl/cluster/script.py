"""A batch script for Slurm: one torchrun on each node, with the rendezvous on the first."""

import math
import shlex
import subprocess
from collections.abc import Sequence


def sbatch(
    nodes: int,
    each: int,
    module: str = "hpcdl.training",
    arguments: Sequence[str] = (),
    minutes: int = 30,
    gpus: bool = False,
    restarts: int = 1,
) -> str:
    """Return a job that runs `python -m module arguments` in `each` processes on each of `nodes` nodes.

    `gpus` asks for one per process; a run with a dead process restarts up to `restarts` times. Raises ValueError if a
    number is too small, `module` is not a module's name, or an argument has unprintable characters.
    """
    _check({"nodes": nodes, "each": each, "minutes": minutes, "restarts": restarts}, module, arguments)
    program = shlex.join(["-m", module, *arguments])
    cards = f"#SBATCH --gpus-per-node={each}\n" if gpus else ""
    return f"""#!/bin/bash
#SBATCH --job-name={module.rpartition(".")[2]}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={each}
{cards}#SBATCH --time={minutes // 60:02}:{minutes % 60:02}:00
#SBATCH --output=%x-%j.out
export OMP_NUM_THREADS=1
# A store for each start: in a shared one a restart finds the addresses of processes that have ended (pytorch #135712).
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# srun is told its processors again: since Slurm 22.05 it does not take them from the job.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# Another job may share the node: each has a port of its own, below those that systems give to programs (from 32768).
port=$((20000 + SLURM_JOB_ID % 10000))
srun --cpus-per-task={each} torchrun --nnodes={nodes} --nproc-per-node={each} --max-restarts={restarts} \\
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$first:$port" \\
    {program}
"""


def _check(numbers: dict[str, int], module: str, arguments: Sequence[str]) -> None:
    for name, value in numbers.items():
        least = 0 if name == "restarts" else 1
        if value < least:
            raise ValueError(f"{name} is {value}, expected {least} or more")
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"module is {module!r}, expected a name such as hpcdl.training")
    for argument in arguments:
        if not argument.isprintable():
            raise ValueError(
                f"the argument {argument!r} has characters that cannot be printed: a script cannot hold it"
            )


def time_advice(minutes: int) -> str:
    """Say what to change if Slurm's default partition allows a job less time than `minutes`: it would wait forever.

    Empty if it allows enough, or if Slurm is not installed here.
    """
    limits = _time_limits()
    default = next((name for name in limits if name.endswith("*")), "")
    if not default or limits[default] >= minutes:
        return ""
    longer = [name for name, limit in limits.items() if limit >= minutes]
    other = f", or name a partition that allows it: #SBATCH --partition={longer[0]}" if longer else ""
    return (
        f"The script asks for {minutes} minutes, and Slurm's default partition {default.rstrip('*')} allows "
        f"{limits[default]:g}: the job would wait forever. Ask for less in its line --time{other}."
    )


def _time_limits() -> dict[str, float]:
    """Return the minutes that each partition allows a job; the default partition's name ends in *."""
    try:
        asked = subprocess.run(
            ["sinfo", "--noheader", "--format=%P %l"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [line.split() for line in asked.stdout.splitlines()]
    return {row[0]: _minutes(row[1]) for row in rows if len(row) == 2}


def _minutes(limit: str) -> float:
    """Parse a limit in Slurm's format to minutes: 2-12:00:00, 1:30:00, 30:00 (minutes and seconds), infinite."""
    days, _, clock = limit.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in [*parts, *([days] if days else [])]):
        return math.inf
    hours, minutes, seconds = [0] * (3 - len(parts)) + [int(part) for part in parts]
    return 1440 * int(days or 0) + 60 * hours + minutes + seconds / 60
