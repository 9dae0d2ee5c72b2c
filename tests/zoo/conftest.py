"""Programs over real MPI, as in tests/hpcdl."""

import runpy
from pathlib import Path

mpiexec = runpy.run_path(str(Path(__file__).parents[1] / "hpcdl" / "conftest.py"))["mpiexec"]
