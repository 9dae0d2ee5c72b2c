"""Two students of a hub, which runs from a wheel: each has labs, engines, cores, limits and an end of their own."""

import contextlib
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]
CONFIG = """
import os
exec(open({config!r}).read().replace("IDLE_SECONDS = 3600", "IDLE_SECONDS = {idle}"))
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
    c.Spawner.args = [*c.Spawner.args, "--allow-root"]
"""
ENGINES = """
import contextlib, json, os, resource, torch
from hpcdl.cluster import Cluster
from hpcdl.machine import cores
import hpcdl, psutil
with Cluster(n=4) as cluster:
    pids = cluster.run(lambda comm: __import__("os").getpid())
    server = psutil.Process().parent()
    family = [server, *server.children(recursive=True)]
    together = threads = 0
    for process in family:
        with contextlib.suppress(psutil.Error, OSError):  # it has just ended
            together += process.memory_full_info().pss
            threads += process.num_threads()
print(json.dumps({"home": os.environ["HOME"], "pids": pids, "cores": cores(), "hpcdl": hpcdl.__file__,
                  "mode": os.stat("labs" if os.path.isdir("labs") else ".").st_mode & 0o777,
                  "memory": together, "threads": threads, "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
                  "data": resource.getrlimit(resource.RLIMIT_DATA)[0]}))
"""
TRAINING = "import time\nend = time.time() + 600\nwhile time.time() < end: time.sleep(0.1)"
PAGES: list = []  # their connections stay open, as those of pages
TOKEN = "0123456789abcdef0123456789abcdef"


def from_a_wheel(place: Path) -> Path:
    """The scripts of an environment with the wheel; everything else comes from this one."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place, ROOT)
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv")
    scripts = place / "venv" / "bin"
    run(sys.executable, "-m", "pip", "--python", scripts / "python", "install", "-q", "--no-deps", *place.glob("*.whl"))
    others = "\n".join(path for path in site.getsitepackages() if os.path.isdir(path))
    (next(place.glob("venv/lib/python*/site-packages")) / "others.pth").write_text(others)
    for name in ("share", "etc"):
        (place / "venv" / name).symlink_to(Path(sys.prefix) / name)
    for shared in Path(sys.prefix, "lib").glob("[!p]*"):  # MPI
        (place / "venv" / "lib" / shared.name).symlink_to(shared)
    server = scripts / "jupyterhub-singleuser"
    server.write_text(f"#!{scripts}/python\nfrom jupyterhub.singleuser import main\nmain()\n")
    server.chmod(0o755)
    return scripts


def run(*command) -> None:
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture
def hub(tmp_path, need, held_port):
    """A running hub; yields the address of its users."""
    pytest.importorskip("jupyterhub", reason="jupyterhub is absent: pip install 'hpcdl[hub]'")
    proxy = os.environ.get("HPCDL_HUB_PROXY") or shutil.which("configurable-http-proxy")
    need("hub", proxy is not None, "npm install -g configurable-http-proxy")
    address = f"http://127.0.0.1:{held_port()}"
    settings = tmp_path / "config.py"
    settings.write_text(
        CONFIG.format(
            config=str(ROOT / "docs" / "jupyterhub_config.py"),
            home=str(tmp_path),
            hub=held_port(),
            api=held_port(),
            proxy=proxy,
            token=TOKEN,
            idle=24,
        )
    )
    log = (tmp_path / "hub.log").open("w")
    scripts = from_a_wheel(tmp_path)
    environment = {**os.environ, "HPCDL_HUB_URL": address, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        [scripts / "python", "-m", "jupyterhub", "-f", settings],
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
        while PAGES:
            PAGES.pop().close()
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        for member in psutil.wait_procs(family, timeout=10)[1]:
            member.kill()
        process.kill()
        process.wait()
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


def begin_in_kernel(address: str, user: str, code: str):
    """Start `code` in a new kernel of this user's server; return the kernel's number and its connection."""
    import websocket

    base = f"/user/{user}/api/kernels"
    kernel = request(address, base, "POST", {"name": "python3"})["id"]
    channel = websocket.create_connection(
        f"{address.replace('http', 'ws')}{base}/{kernel}/channels",
        header=[f"Authorization: token {TOKEN}"],
        timeout=180,
    )
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": True}
    header = {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "1", "version": "5.3"}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    channel.send(json.dumps(message))
    PAGES.append(channel)
    return kernel, channel


def run_in_kernel(address: str, user: str, code: str) -> dict:
    """What `code` prints, as JSON, in a new kernel of this user's server, which stays."""
    _, channel = begin_in_kernel(address, user, code)
    printed = ""
    while True:
        answer = json.loads(channel.recv())
        kind = answer["msg_type"]
        if kind == "stream" and answer["content"]["name"] == "stdout":
            printed += answer["content"]["text"]
        elif kind == "error":
            pytest.fail("\n".join(answer["content"]["traceback"]))
        elif kind == "execute_reply":
            return json.loads(printed.strip().splitlines()[-1])


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.timeout(500)
def test_two_students_have_labs_engines_cores_and_limits_of_their_own(hub, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    for user in ("ada", "ben"):
        (tmp_path / user).mkdir()
        assert request(hub, f"/hub/api/users/{user}", "POST") is not None
        assert request(hub, f"/hub/api/users/{user}/server", "POST") is not None
    for user in ("ada", "ben"):
        until(
            lambda user=user: request(hub, f"/user/{user}/api/status"),
            180,
            lambda: (tmp_path / "hub.log").read_text()[-3000:],
        )
    with ThreadPoolExecutor() as both:
        ada, ben = both.map(lambda user: run_in_kernel(hub, user, ENGINES), ("ada", "ben"))
    assert ada["home"] != ben["home"]
    assert not set(ada["pids"]) & set(ben["pids"])
    for user, student in {"ada": ada, "ben": ben}.items():
        assert student["hpcdl"].startswith(str(tmp_path / "venv")), "the wheel and not the clone"
        assert len(set(student["pids"])) == 4
        assert student["data"] == 4 << 30
        assert student["threads"] < student["processes"] / 2 == 500
        assert student["cores"] <= 2
        assert student["memory"] < 1.3e9, "docs/jupyterhub.md plans for it"
        assert (tmp_path / user / "labs").stat().st_mode & 0o777 == 0o700
        names = {entry["name"] for entry in request(hub, f"/user/{user}/api/contents/")["content"]}
        assert "02_gradient_descent.ipynb" in names
    sources = [path for path in tmp_path.rglob("*") if path.name == "source" or path.name.startswith("bank")]
    assert not sources, "solutions are nowhere"
    log = (tmp_path / "hub.log").read_text()
    assert "this is a clone" not in log
    assert ("no account 'teacher' here" in log) is not has_account("teacher")

    # An hour is 24 s here: an idle kernel ends though its page is open, and one that trains does not.
    busy, _ = begin_in_kernel(hub, "ada", TRAINING)
    until(lambda: [kernel["id"] for kernel in request(hub, "/user/ada/api/kernels")] == [busy], 120, lambda: log)
    assert until(lambda: kernel_of(hub, "ada", busy)["execution_state"] == "busy", 10, lambda: "it trains")


def kernel_of(hub: str, user: str, number: str) -> dict:
    return request(hub, f"/user/{user}/api/kernels/{number}")


def has_account(name: str) -> bool:
    return subprocess.run(["id", name], capture_output=True, check=False).returncode == 0
