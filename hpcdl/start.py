"""Start the commands `hpcdl` and `autograder`."""

import sys
from importlib import import_module


def start(package: str) -> None:
    """Run a package's command line; Ctrl-C is one sentence even while its modules are imported."""
    try:
        import_module(f"{package}.cli").app(prog_name=package)
    except KeyboardInterrupt:
        print("Interrupted before anything was done.", file=sys.stderr)
        sys.exit(130)
