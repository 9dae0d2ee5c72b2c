"""Ports that are held until a server listens on them: chance decides nothing when engines start."""

import contextlib
import errno
import json
import socket
import sys
import time
from types import SimpleNamespace

import nbclient
import nbformat
import psutil
import pytest
import zmq

from hpcdl.cluster import Cluster, ClusterError, controller, surroundings
from hpcdl.cluster.ports import OF_A_KERNEL, HeldPorts
from hpcdl.cluster.processes import Processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no port for a later server")


def given_away(port: int) -> bool:
    """Whether another program that sets no option gets this port."""
    with socket.socket() as other, contextlib.suppress(OSError):
        other.bind(("127.0.0.1", port))
        return True
    return False


def test_a_held_port_is_for_the_server_that_asks_for_it():
    context = zmq.Context()
    with HeldPorts() as held:
        numbers = [held.port() for _ in range(200)]
        assert len({*numbers}) == 200
        for number, interface in zip(numbers, ["127.0.0.1", "*"] * 100, strict=True):
            assert not given_away(number)
            with context.socket(zmq.PUB) as server, context.socket(zmq.PUB) as second:
                server.bind(f"tcp://{interface}:{number}")
                with pytest.raises(zmq.ZMQError) as refused:
                    second.bind(f"tcp://{interface}:{number}")
                assert refused.value.errno == errno.EADDRINUSE
    context.term()


def test_a_released_port_is_for_everybody():
    """Of many ports, so that it does not matter if another program takes one at this moment."""
    with HeldPorts() as held:
        released, kept = ([held.port() for _ in range(20)] for _ in range(2))
        for number in released * 2:
            held.release(number)
        assert any(map(given_away, released))
        assert not any(map(given_away, kept))
    assert any(map(given_away, kept))


@pytest.mark.parametrize(
    ("ends", "limits", "starts"), [(1, [], 2), (2, [], 2), (0, [], 1), (1, ["a process may open only 64 files"], 1)]
)
def test_a_controller_that_ends_while_engines_start_starts_once_more(
    ends, limits, starts, tmp_path, monkeypatch, capsys
):
    """As where a port is taken, on a system that holds none; not where a limit would end it again."""
    monkeypatch.setattr(surroundings, "causes", lambda folder, n: limits)
    begun, cluster = [], Cluster(2)

    def begin():
        begun.append("begin")
        cluster._processes = processes = Processes(SimpleNamespace(), tmp_path)
        processes.controller = SimpleNamespace(poll=lambda: 1 if len(begun) <= ends else None)
        (processes.directory / "controller.log").write_text("started\nin use\n")
        cluster._finalizer = lambda: None
        if len(begun) <= max(1, ends):
            raise ClusterError("no engine")

    monkeypatch.setattr(cluster, "_begin_once", begin)
    with contextlib.suppress(ClusterError) if starts > ends > 0 else pytest.raises(ClusterError, match="no engine"):
        cluster._begin()
    assert len(begun) == starts
    assert ("controller has ended, and starts again: in use" in capsys.readouterr().out) is (starts == 2)


CONNECTED = """
from ipykernel.connect import get_connection_info
print([number for name, number in get_connection_info(unpack=True).items() if name.endswith("_port")])
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # nbclient's, on Python 3.12
def test_the_ports_of_a_kernel_are_its_own():
    """Otherwise another program may take one before the kernel listens on it, and the kernel ends."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CONNECTED)])
    client = nbclient.NotebookClient(notebook, kernel_name="python3")
    client.km = client.create_kernel_manager()
    with HeldPorts() as held:
        held.for_kernel(client.km)
        numbers = {getattr(client.km, name) for name in OF_A_KERNEL}
        assert not [number for number in numbers if given_away(number)]
        client.execute()
    assert {*json.loads(notebook.cells[0].outputs[0].text)} == numbers


class EndedError(Exception):
    """Stands for the process's end."""


@pytest.mark.parametrize(
    ("alive", "engines", "pending", "ends"),
    [(True, [], [1], False), (False, [], [], True), (False, [0], [1], True), (False, [0], [], False)],
)
def test_a_controller_without_heartbeats_ends_if_engines_wait(alive, engines, pending, ends, monkeypatch, capsys):
    """Engines that are up need no heartbeats: their processes show whether they live."""
    looks = []

    def exits(code):
        raise EndedError(f"code {code}")

    def pause(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            raise EndedError("looked")

    monkeypatch.setattr(controller, "os", SimpleNamespace(_exit=exits))
    monkeypatch.setattr(controller, "time", SimpleNamespace(sleep=pause))
    hub = SimpleNamespace(engines=engines, incoming_registrations=pending)
    monitor = SimpleNamespace(pid=1, is_alive=lambda: alive)
    with pytest.raises(EndedError, match="code 1" if ends else "looked"):
        controller.end_with_heart_monitor(SimpleNamespace(heartmonitor_process=monitor, hub=hub))
    assert ("counts heartbeats has ended" in capsys.readouterr().out) is ends


def nothing_outlives(controller: psutil.Process) -> bool:
    """Whether the controller's child, which counts heartbeats, ends when the controller is killed."""
    while not (children := controller.children(recursive=True)):
        time.sleep(0.02)
    controller.kill()
    _, alive = psutil.wait_procs(children, timeout=30)
    return not alive


@pytest.mark.mpi
def test_the_controller_chooses_no_port_that_it_does_not_hold():
    """Its last server, for heartbeats, listens a while after the others; without it, no engine comes up."""
    engines = type("Engines", (), {"elsewhere": False, "stop": lambda self: None})()
    processes = Processes(engines)
    try:
        processes.start_controller()
        connection = processes.connection("engine")
        numbers = [port for port in connection.values() if isinstance(port, int)]
        assert len(numbers) >= 7
        assert not [number for number in numbers if given_away(number)], "in the moment in which they are written"
        assert "Exhausted" not in processes.log("controller", 1000)
        assert nothing_outlives(psutil.Process(processes.controller.pid))
    finally:
        processes.stop()
