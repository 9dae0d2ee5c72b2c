"""The course's settings of JupyterLab's server: a message to a page never waits for the one before it."""

import asyncio
import json
import socket
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jupyter_server.extension.manager import ExtensionPackage
from tornado import httpserver, testing, web, websocket

import hpcdl.jupyter

CONFIG = Path(hpcdl.jupyter.__file__).parent / "jupyter_server_config.d" / "hpcdl.json"


class Connection:
    """As a kernel's connection: it knows its handler, and connects once the page is there."""

    def __init__(self, handler):
        self.websocket_handler, self.connected = handler, 0

    def connect(self):
        self.connected += 1
        return "the future of the connection"


class Handler(websocket.WebSocketHandler):
    def open(self):
        connection = self.settings["kernel_websocket_connection_class"](self)
        assert connection.connect() == "the future of the connection"
        stream = self.ws_connection.stream
        prompt = stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        self.write_message(json.dumps([bool(prompt), connection.connected]))


def answer(change) -> list:
    """What a page hears from a server whose application `change` has seen."""

    async def talk() -> list:
        application = web.Application([("/", Handler)], kernel_websocket_connection_class=Connection)
        change(types.SimpleNamespace(web_app=application))
        listening, port = testing.bind_unused_port()
        server = httpserver.HTTPServer(application)
        server.add_sockets([listening])
        page = await websocket.websocket_connect(f"ws://127.0.0.1:{port}/")
        said = json.loads(await page.read_message())
        page.close()
        server.stop()
        await server.close_all_connections()
        return said

    with ThreadPoolExecutor() as pool:  # Playwright leaves a loop running in this thread when it shares the process
        return pool.submit(asyncio.run, asyncio.wait_for(talk(), 20)).result()


def test_kernel_messages_leave_at_once():
    assert answer(lambda app: None) == [False, 1]  # as tornado leaves it
    assert answer(hpcdl.jupyter._load_jupyter_server_extension) == [True, 1]


def test_the_server_finds_the_extension_that_the_settings_name():
    (name,) = json.loads(CONFIG.read_text())["ServerApp"]["jpserver_extensions"]
    assert ExtensionPackage(name=name, enabled=True).validate()


@pytest.mark.parametrize("first", ["jupyterlab.labapp", "autograder.cli"])
def test_slow_import_is_avoided(first):
    """A grammar that jsonschema would build where Jupyter's server is installed: 1.3 s of each start."""
    code = f"import hpcdl.commands, {first}, nbformat, sys; print('jsonschema' in sys.modules, 'lark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True False\n"
