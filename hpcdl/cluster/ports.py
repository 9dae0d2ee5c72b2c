"""Keep TCP ports free until a server listens on them."""

import socket
import sys
from typing import Any

OF_A_KERNEL = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")


class HeldPorts:
    """Hold free TCP ports for servers that this process or its children start later; at `with`'s end, no more.

    A port that is only looked for may be taken before a server uses it. Linux gives a held port to no program that
    asks for any free one. A server that asks for exactly this port and sets SO_REUSEADDR, as ZeroMQ does, gets it.
    Source: socket(7) of the Linux manual, SO_REUSEADDR.
    """

    def __init__(self):
        self._sockets: dict[int, socket.socket] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for port in [*self._sockets]:
            self.release(port)

    def port(self) -> int:
        """Return a free port, and hold it until `release`, or the process's end."""
        one = socket.socket()
        one.bind(("", 0))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # set earlier, it may be given another's held port
        number = one.getsockname()[1]
        self._sockets[number] = one
        return number

    def for_kernel(self, manager: Any) -> None:
        """Hold the ports of the kernel that `manager` starts: jupyter_client only looks for free ones."""
        if sys.platform == "linux":
            manager.cache_ports = False
            for name in OF_A_KERNEL:
                setattr(manager, name, self.port())

    def release(self, port: int) -> None:
        """Hold `port` no more."""
        if port in self._sockets:
            self._sockets.pop(port).close()
