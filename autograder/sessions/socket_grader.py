"""The trusted side of a worker's socket: it sends calls, and answers the ones that come back."""

import contextlib
import socket
from collections.abc import Callable

from autograder.boundary.channel import Channel
from autograder.boundary.limits import account
from autograder.boundary.peer import mark_of
from autograder.boundary.protocol import Frame

from .grader import Grader

MOST_CALLS = 10_000  # that a function may make of the grader's before serving them counts as its own time


class SocketGrader(Grader):
    """Asks a worker over a socket. `left` says how many seconds the worker still has."""

    def __init__(self, sock: socket.socket, key: bytes):
        super().__init__()
        self.sock, self.channel = sock, Channel(sock, key)
        self.left: Callable[[], float] = lambda: 0.0

    def ask(self, frame: Frame) -> Frame:
        if frame.header[1][0] == "name":
            self.sent = frame
        self.channel.send(frame, self.left)
        served = 0
        while True:
            reply = self.channel.receive(self.left)
            if reply.header[:1] == ["call"]:
                served += 1
                with account().aside() if served <= MOST_CALLS else contextlib.nullcontext():
                    answer = self.serve(reply)
                self.channel.send(answer, self.left)
            elif mark_of(reply) == mark_of(frame):
                return reply
