"""What this machine is."""

import platform
from pathlib import Path


def processor() -> str:
    """The processor's name, as Linux has it; elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
