"""What a lab's first cell imports is what the lab uses: the kernels of labs 01 to 04 stay small."""

import json

import nbformat
import pytest
from nbclient import NotebookClient

from hpcdl import labs
from hpcdl.jupyter.kernel import first_cell

MEGABYTES = 350  # torch takes 200 of them
HEAVY = {"sympy", "scipy", "sklearn", "numba", "triton", "mpi4py", "ipyparallel", "networkx", "hypothesis"}
ASK = """import json, sys, psutil
modules = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps([psutil.Process().memory_info().rss >> 20, modules]))"""


@pytest.mark.labs  # starts a kernel for each
@pytest.mark.parametrize("path", labs.notebooks(labs.CLONE)[:4], ids=lambda path: path.stem)
def test_a_kernel_is_small_after_the_imports(path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in (first_cell(path), ASK)])
    NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    megabytes, modules = json.loads(notebook.cells[-1].outputs[0].text)
    assert not HEAVY & set(modules)
    assert megabytes < MEGABYTES
