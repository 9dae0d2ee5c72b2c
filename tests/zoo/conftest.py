"""Programs over real MPI, as in tests/hpcdl."""

import runpy
from pathlib import Path

import torch

mpiexec = runpy.run_path(str(Path(__file__).parents[1] / "hpcdl" / "conftest.py"))["mpiexec"]

torch.sparse.check_sparse_tensor_invariants.enable()  # unless one chooses, the first sparse tensor of a process warns
