"""`python -m benchmarks [NAME] [OPTIONS]`: one benchmark, or all of them, each in a process of its own."""

import signal
import subprocess
import sys

import typer

from benchmarks import BENCHMARKS, load

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
        return run_all(arguments)
    name, *options = arguments
    if name not in BENCHMARKS:
        print(f"There is no benchmark {name!r}; the benchmarks are {', '.join(BENCHMARKS)}.", file=sys.stderr)
        return 2
    return run(name, options)


def run(name: str, options: list[str]) -> int:
    """One benchmark in this process."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(load(name).main)
    return app(options, prog_name=f"python -m benchmarks {name}", standalone_mode=True) or 0


def run_all(options: list[str]) -> int:
    """Every benchmark, one after another; a failure is remembered and the others run all the same."""
    failed = [name for name in BENCHMARKS if subprocess.call([sys.executable, "-m", "benchmarks", name, *options])]
    if failed:
        print(f"These benchmarks failed: {', '.join(failed)}.", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ranks that were started are ended, too
    sys.exit(main(sys.argv[1:]))
