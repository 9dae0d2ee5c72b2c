"""The controller process: ipyparallel's, which ends with the kernel."""

import os
import shutil
import time

from hpcdl.cluster import lifeline
from hpcdl.cluster.watcher import DIRECTORY


def remove_directory() -> None:
    """Remove the cluster's directory, once the engines, which write in it, have had the time to end too."""
    time.sleep(1)
    shutil.rmtree(os.environ[DIRECTORY], ignore_errors=True)


if __name__ == "__main__":
    lifeline.hold(remove_directory)
    from ipyparallel.controller.app import main

    main()
