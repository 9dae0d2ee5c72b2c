"""`python -m hpcdl.jupyter.server` is `python -m jupyterlab`, which starts a second sooner."""

import runpy

from hpcdl.lazy import leave_out_slow

if __name__ == "__main__":
    leave_out_slow()
    runpy.run_module("jupyterlab", run_name="__main__")
