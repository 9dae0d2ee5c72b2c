"""Ports that are held until a server listens on them: chance decides nothing when engines start."""

import contextlib
import errno
import socket
import sys

import pytest
import zmq

from hpcdl.cluster.ports import Held
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
    with Held() as held:
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
    with Held() as held:
        released, kept = held.port(), held.port()
        held.release(released)
        held.release(released)
        assert given_away(released)
        assert not given_away(kept)
    assert given_away(kept)


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
    finally:
        processes.stop()
