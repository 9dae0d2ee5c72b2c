"""Two students on one machine: each has labs, engines, cores and limits of their own."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = """
import os
exec(open({config!r}).read())
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {home!r} + "/{{username}}"
c.JupyterHub.hub_port = {hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.auth_token = "test"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.JupyterHub.services = [{{"name": "test", "api_token": "{token}", "admin": True}}]
scopes = ["admin:users", "admin:servers", "access:servers"]
c.JupyterHub.load_roles = [{{"name": "test", "services": ["test"], "scopes": scopes}}]
c.JupyterHub.db_url = "sqlite:///" + {home!r} + "/hub.sqlite"
c.JupyterHub.cookie_secret_file = {home!r} + "/cookie"
if os.geteuid() == 0:
    c.Spawner.args = ["--allow-root"]
"""
ENGINES = """
import json, os, resource, torch
from hpcdl.cluster import Cluster
from hpcdl.machine import cores
with Cluster(n=2) as cluster:
    pids = cluster.run(lambda comm: __import__("os").getpid())
print(json.dumps({"home": os.environ["HOME"], "pids": pids, "cores": cores(),
                  "data": resource.getrlimit(resource.RLIMIT_DATA)[0]}))
"""
TOKEN = "0123456789abcdef0123456789abcdef"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def hub(tmp_path, need):
    """A running hub; yields the address of its users."""
    pytest.importorskip("jupyterhub", reason="jupyterhub is absent: pip install 'hpcdl[hub]'")
    proxy = os.environ.get("HPCDL_HUB_PROXY") or shutil.which("configurable-http-proxy")
    need("hub", proxy is not None, "npm install -g configurable-http-proxy")
    address = f"http://127.0.0.1:{free_port()}"
    settings = tmp_path / "config.py"
    settings.write_text(
        CONFIG.format(
            config=str(ROOT / "docs" / "jupyterhub_config.py"),
            home=str(tmp_path),
            hub=free_port(),
            api=free_port(),
            proxy=proxy,
            token=TOKEN,
        )
    )
    log = (tmp_path / "hub.log").open("w")
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "HPCDL_HUB_URL": address, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterhub", "-f", settings],
        cwd=tmp_path,
        env=environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        until(lambda: request(address, "/hub/api/"), 60, lambda: (tmp_path / "hub.log").read_text()[-3000:])
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        log.close()


def request(address: str, path: str, method: str = "GET", body: dict | None = None):
    """The JSON that the hub or a student's server answers with, None where there is no answer yet."""
    import requests

    try:
        answer = requests.request(
            method, address + path, headers={"Authorization": f"token {TOKEN}"}, json=body, timeout=30
        )
    except requests.ConnectionError:
        return None
    return (answer.json() if answer.content else {}) if answer.ok else None


def until(condition, seconds: float, otherwise):
    deadline = time.monotonic() + seconds
    while (found := condition()) is None or found is False:
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.3)
    return found


def run_in_kernel(address: str, user: str, code: str) -> dict:
    """What `code` prints, as JSON, in a new kernel of this user's server."""
    import websocket

    base = f"/user/{user}/api/kernels"
    kernel = request(address, base, "POST", {"name": "python3"})["id"]
    channel = websocket.create_connection(
        f"{address.replace('http', 'ws')}{base}/{kernel}/channels", header=[f"Authorization: token {TOKEN}"], timeout=90
    )
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": True}
    header = {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "1", "version": "5.3"}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    channel.send(json.dumps(message))
    printed = ""
    while True:
        answer = json.loads(channel.recv())
        kind = answer["msg_type"]
        if kind == "stream" and answer["content"]["name"] == "stdout":
            printed += answer["content"]["text"]
        elif kind == "error":
            pytest.fail("\n".join(answer["content"]["traceback"]))
        elif kind == "execute_reply":
            channel.close()
            return json.loads(printed.strip().splitlines()[-1])


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.timeout(280)
def test_two_students_have_labs_engines_cores_and_limits_of_their_own(hub, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    for user in ("ada", "ben"):
        (tmp_path / user).mkdir()
        assert request(hub, f"/hub/api/users/{user}", "POST") is not None
        assert request(hub, f"/hub/api/users/{user}/server", "POST") is not None
    for user in ("ada", "ben"):
        until(
            lambda user=user: request(hub, f"/user/{user}/api/status"),
            60,
            lambda: (tmp_path / "hub.log").read_text()[-3000:],
        )
    with ThreadPoolExecutor() as both:
        ada, ben = both.map(lambda user: run_in_kernel(hub, user, ENGINES), ("ada", "ben"))
    assert ada["home"] != ben["home"]
    assert not set(ada["pids"]) & set(ben["pids"])
    for user, student in {"ada": ada, "ben": ben}.items():
        assert len(set(student["pids"])) == 2
        assert student["data"] == 4 << 30
        assert student["cores"] <= 2
        names = {entry["name"] for entry in request(hub, f"/user/{user}/api/contents/")["content"]}
        assert "02_gradient_descent.ipynb" in names
        assert "source" not in names, "solutions are not copied"
