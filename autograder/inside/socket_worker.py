"""A worker at the end of a socket, as grading has it: a process of its own, which serves until the grader hangs up."""

import builtins
import contextlib
import socket

from autograder.boundary import protocol
from autograder.boundary.limits import account
from autograder.boundary.peer import mark_of
from autograder.boundary.protocol import Frame, ProtocolError, UnsendableError

from .forbidden import Guard
from .worker import Worker, text_of


class SocketWorker(Worker):
    """A worker at the end of a socket."""

    def __init__(self, sock: socket.socket, namespace: dict, guard: Guard | None = None):
        super().__init__(namespace, guard)
        self.sock, self.incoming = sock, protocol.Incoming(sock)

    def ask(self, frame: Frame) -> Frame:
        time = account()
        with time.aside():  # the grader works, or a call within, which has a limit of its own
            protocol.send(self.sock, frame)
            while True:
                reply = self.incoming.receive()
                if reply.header[:1] == ["call"]:
                    with time.counted():
                        answer = self.reply(reply)
                    protocol.send_bytes(self.sock, answer)
                elif mark_of(reply) == mark_of(frame):
                    return reply

    def reply(self, frame: Frame) -> bytes:
        """The reply to a call, in a form that can be sent whatever the result is."""
        reply = self.serve(frame)
        try:
            return protocol.pack(reply)
        except (UnsendableError, ValueError, TypeError, RecursionError) as error:
            problem = {"kind": "unsendable", "type": type(error).__name__, "text": text_of(error)}
            return protocol.pack(Frame(["error", problem, mark_of(frame)]))

    def run(self) -> None:
        """Serve until the grader closes the connection or breaks the protocol."""
        with contextlib.suppress(protocol.Closed, ProtocolError):
            while True:
                protocol.send_bytes(self.sock, self.reply(self.incoming.receive()))


def fresh_namespace() -> dict:
    """A namespace for a student's cells, as a notebook has it."""
    return {"__name__": "__main__", "__builtins__": builtins}


def warm_up(worker: Worker) -> None:
    """Read a notebook of one cell. The first time, in the zygote, sets up what parses; the first time in a worker
    takes the memory for it, and now nobody waits for that."""
    cells, *_ = worker.parse(b'{"cells": [{"cell_type": "code", "source": "def f(x): return x"}]}')
    worker.needed(cells, [["f"]])
