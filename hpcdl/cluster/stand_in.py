"""Hold an engine's place under mpiexec: let the template fork the engine, and end when the engine ends.

Run it by its path, with an engine's options for Python: `python -I -S stand_in.py -P -m hpcdl.cluster.engine ...`. It
imports only what starts at once. Without a template it becomes the engine itself.
"""

import json
import os
import select
import socket
import sys

DIRECTORY = "HPCDL_CLUSTER_DIR"
SOCKET = "template"  # in the cluster's directory
STARTED = b"\1"
PMI = "PMI_FD"  # by which MPICH's mpiexec tells a rank its descriptor


def main(options: list[str]) -> None:
    """Stand for the engine with these options until it ends, and exit with its status."""
    shell = os.getppid()
    with socket.socket(socket.AF_UNIX) as line:
        if not ask(line, options):
            os.execv(sys.executable, [sys.executable, *options])
        while not select.select([line], [], [], 0.5)[0]:
            if os.getppid() != shell:  # the template kills an engine whose stand-in has ended
                sys.exit(1)
        sys.exit(ord(line.recv(1) or b"\1"))


def ask(line: socket.socket, options: list[str]) -> bool:
    """Ask the template for an engine; return whether it was forked."""
    descriptors = [0, 1, 2, *([int(os.environ[PMI])] if PMI in os.environ else [])]
    engine = {
        "options": options,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "descriptors": descriptors,
    }
    request = json.dumps(engine).encode()
    try:
        directory = os.open(os.environ[DIRECTORY], os.O_RDONLY)
        line.connect(f"/proc/self/fd/{directory}/{SOCKET}")  # the directory's own path may be too long
        socket.send_fds(line, [len(request).to_bytes(8, "big")], descriptors)
        line.sendall(request)
        return line.recv(1) == STARTED
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
