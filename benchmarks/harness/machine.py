"""The machine that was measured, as a figure must name it."""

import os
import platform
import sys
from datetime import UTC, datetime

import psutil
import torch

from hpcdl.machine import cores, processor


def describe() -> dict:
    """Processor, usable cores, memory, systems, versions, load when it was asked, and time (UTC)."""
    return {
        "processor": processor(),
        "cores": cores(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "load": [round(load, 2) for load in os.getloadavg()],
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
