"""The trusted side of a worker's socket: it sends calls, and answers the ones that come back."""

import contextlib
import socket
from collections.abc import Callable

from autograder.boundary import protocol
from autograder.boundary.limits import account
from autograder.boundary.peer import mark_of
from autograder.boundary.protocol import Frame

from .grader import Grader

MOST_CALLS = 10_000  # that a function may make of the grader's before serving them counts as its own time


class SocketGrader(Grader):
    """Asks a worker over a socket. `left` says how many seconds the worker still has."""

    def __init__(self, sock: socket.socket):
        super().__init__()
        self.sock, self.incoming = sock, protocol.Incoming(sock)
        self.left: Callable[[], float] = lambda: 0.0

    def ask(self, frame: Frame) -> Frame:
        if frame.header[1][0] == "name":
            self.sent = frame
        protocol.send(self.sock, frame, self.left)
        served = 0
        while True:
            reply = self.incoming.receive(self.left)
            if reply.header[:1] == ["call"]:
                served += 1
                with account().aside() if served <= MOST_CALLS else contextlib.nullcontext():
                    answer = self.serve(reply)
                protocol.send(self.sock, answer, self.left)
            elif mark_of(reply) == mark_of(frame):  # any other answer is forged, and ignored
                return reply
