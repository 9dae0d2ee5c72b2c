"""Settings of JupyterLab for the labs (`labconfig`), its kernels, and one of its server: messages leave at once."""

from typing import Any


def _jupyter_server_extension_points() -> list[dict]:
    return [{"module": "hpcdl.jupyter"}]


def _load_jupyter_server_extension(app: Any) -> None:
    """Switch Nagle's algorithm off on the connections between kernels and pages.

    It holds a small message back until the one before it is acknowledged, and the other side delays its
    acknowledgement (40 ms in Linux): a picture that follows a slider would come that much later (RFC 1122, 4.2.3).
    """
    settings = app.web_app.settings

    connection = settings["kernel_websocket_connection_class"]

    class PromptConnection(connection):  # type: ignore[valid-type, misc]  # only the server knows the class
        def connect(self):
            self.websocket_handler.set_nodelay(True)
            return super().connect()

    settings["kernel_websocket_connection_class"] = PromptConnection
