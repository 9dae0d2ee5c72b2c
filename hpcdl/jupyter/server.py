"""`python -m hpcdl.jupyter.server` is `python -m jupyterlab`, which starts a second sooner."""

import runpy

from hpcdl.lazy import hide_slow_imports

if __name__ == "__main__":
    hide_slow_imports()
    runpy.run_module("jupyterlab", run_name="__main__")
