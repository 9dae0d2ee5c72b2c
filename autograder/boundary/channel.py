"""A connection of grader and worker, whose frames only these two can write.

The code of an answer runs in the worker's process. It has the same descriptors, and may put another one in the socket's
place, and change what passes. So a seal comes before each frame: a keyed hash of all bytes so far in its direction.
"""

import socket
from _blake2 import blake2b  # in C: an answer cannot change it

from . import protocol
from .protocol import Frame, Left, ProtocolError

BROKEN = 76  # the exit code of a worker that has received what the grader did not write
SEAL = 16  # bytes before a frame
KEY = 32  # bytes
SIDES = b"grader", b"worker"


class BrokenSealError(ProtocolError):
    """A message was changed, added or left out on its way."""


class Channel:
    """One end, the grader's or the `worker`'s; both know the key."""

    def __init__(self, sock: socket.socket, key: bytes, *, worker: bool = False):
        self.sock, self.incoming = sock, protocol.Incoming(sock)
        own, other = SIDES[::-1] if worker else SIDES
        self._sent = blake2b(key=key, digest_size=SEAL, person=own)
        self._received = blake2b(key=key, digest_size=SEAL, person=other)

    def send(self, frame: Frame, left: Left = None) -> None:
        """Write a frame; raise TimeoutError once `left()` reaches 0."""
        self.send_bytes(protocol.pack(frame), left)

    def send_bytes(self, packed: bytes, left: Left = None) -> None:
        """Write a packed frame."""
        self._sent.update(packed)
        protocol.send_bytes(self.sock, self._sent.digest() + packed, left)

    def receive(self, left: Left = None) -> Frame:
        """Return the next frame; raise BrokenSealError if the other side has not written all that came."""
        seal = self.incoming.read(SEAL, left)
        try:
            prefix, header, body = self.incoming.parts(left)
        except ProtocolError as error:
            raise BrokenSealError("a message of another form was added") from error
        for part in (prefix, header, body):
            self._received.update(part)
        if self._received.digest() != seal:
            raise BrokenSealError("a message was changed, added or left out")
        return protocol.unpack(header, body)

    def waiting(self) -> bool:
        """Return whether there is unread input, or the other side has ended."""
        return self.incoming.waiting()
