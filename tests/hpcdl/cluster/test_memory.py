"""A notebook's kernel and four engines with torch fit into a small machine together."""

import os
import sys

import psutil
import pytest

LIMIT_MB = 900  # proportional set size of kernel, controller, launcher and engines
CODE = """
import torch
from hpcdl.cluster import Cluster
cluster = Cluster(n=4).start()
sums = cluster.run(lambda comm: float(__import__("torch").ones(1000).sum()))
"""


@pytest.mark.mpi
@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_kernel_and_four_engines_with_torch_stay_under_their_limit():
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    try:
        reply = client.execute_interactive(CODE, timeout=60, output_hook=lambda message: None)
        assert reply["content"]["status"] == "ok", reply["content"]
        kernel = psutil.Process(manager.provisioner.pid)
        processes = [kernel, *kernel.children(recursive=True)]
        megabytes = sum(process.memory_full_info().pss for process in processes) / 1e6
        sys.stdout.write(f"{len(processes)} processes, {megabytes:.0f} MB\n")
        assert len(processes) >= 6, "the kernel, a controller and four engines"
        assert megabytes < LIMIT_MB
        client.execute_interactive("cluster.stop()", timeout=30)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
