"""Settings of JupyterLab for the labs (`labconfig`), and one of its server: messages of a kernel leave at once."""


def _jupyter_server_extension_points() -> list[dict]:
    return [{"module": "hpcdl.jupyter"}]


def _load_jupyter_server_extension(app) -> None:
    """Switch Nagle's algorithm off on the connections between kernels and pages.

    It holds a small message back until the one before it is acknowledged, and the other side takes its time to
    acknowledge (40 ms in Linux): a picture that follows a slider would come that much later. Source: RFC 1122, 4.2.3.
    """
    settings = app.web_app.settings

    class PromptConnection(settings["kernel_websocket_connection_class"]):
        def connect(self):
            self.websocket_handler.set_nodelay(True)
            return super().connect()

    settings["kernel_websocket_connection_class"] = PromptConnection
