"""Settings of JupyterLab for the labs (`labconfig`), its kernels, and two of its server's.

Messages leave at once; the kernel of the lab that `hpcdl lab 01` opens starts while the browser still loads the page.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

LAB = "HPCDL_LAB"  # the variable with the file of the notebook that the command opens


def _jupyter_server_extension_points() -> list[dict]:
    return [{"module": "hpcdl.jupyter"}]


def _load_jupyter_server_extension(app: Any) -> None:
    """The server calls this while it starts."""
    _send_at_once(app.web_app.settings)
    if lab := os.environ.get(LAB):
        app.io_loop.add_callback(partial(_start_kernel, app, Path(lab)))


def _send_at_once(settings: dict) -> None:
    """Switch Nagle's algorithm off on the connections between kernels and pages.

    It holds a small message back until the one before it is acknowledged, and the other side delays its
    acknowledgement (40 ms in Linux): a picture that follows a slider would be delayed by that much (RFC 1122, 4.2.3).
    """
    connection = settings["kernel_websocket_connection_class"]

    class PromptConnection(connection):  # type: ignore[valid-type, misc]  # only the server knows the class
        def connect(self):
            self.websocket_handler.set_nodelay(True)
            return super().connect()

    settings["kernel_websocket_connection_class"] = PromptConnection


async def _start_kernel(app: Any, lab: Path) -> None:
    """Begin a notebook's session, in which the page finds a kernel; otherwise the page starts its own."""
    try:
        path = lab.relative_to(app.root_dir).as_posix()
        await app.session_manager.create_session(path=path, name=lab.name, type="notebook")
    except Exception as error:  # the page meets any error again and shows it
        app.log.info("The kernel of %s does not start ahead: %s", lab, error)
