"""`python -m benchmarks [NAME] [OPTIONS]`: one benchmark, or all of them, each in a process of its own."""

import os
import signal
import subprocess
import sys

from benchmarks import BENCHMARKS, load
from hpcdl.commands import program

USAGE = f"""\
python -m benchmarks [NAME] [--quick] [OPTIONS]

Without a name, every benchmark is run: {", ".join(BENCHMARKS)}.
--quick shows in seconds that one works; its figures are not to be quoted. `python -m benchmarks NAME --help` names
the options of one."""


def main(arguments: list[str]) -> int:
    """Run what the command line asks for; returns the exit code."""
    if "--help" in arguments[:1]:
        print(USAGE)
        return 0
    if not arguments or arguments[0].startswith("-"):
        return run_all(arguments) if arguments in ([], ["--quick"]) else refuse(arguments)
    name, *options = arguments
    if name not in BENCHMARKS:
        print(f"There is no benchmark {name!r}; the benchmarks are {', '.join(BENCHMARKS)}.", file=sys.stderr)
        return 2
    program(load(name).main, f"python -m benchmarks {name}", options)


def refuse(options: list[str]) -> int:
    """Name the options that not every benchmark has."""
    odd = " ".join(option for option in options if option != "--quick")
    print(f"Without a name the only option is --quick, not {odd}: name the benchmark first.", file=sys.stderr)
    return 2


def run_all(options: list[str]) -> int:
    """Run every benchmark, one after another; a failure is remembered and the others still run."""
    failed = [name for name in BENCHMARKS if subprocess.call([sys.executable, "-m", "benchmarks", name, *options])]
    if failed:
        print(f"These benchmarks failed: {', '.join(failed)}.", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ranks that were started are ended, too
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:  # `| head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("Interrupted; the results of the benchmarks that ended are kept.", file=sys.stderr)
        sys.exit(130)
