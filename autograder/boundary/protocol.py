"""Frames between the grader and the student's process: a JSON header and raw bytes. Never pickle, never eval.

A frame is `<u32 header length><u64 body length><header><body>`. The header is a JSON list; plain values represent
themselves, everything else is a tagged list such as `["tensor", "float32", [2, 3], false]`, whose bytes are the next
buffer (`encode` writes the nodes, `decode` reads them). Every count, depth and length is capped; a frame that breaks a
rule is a `ProtocolError`.

Between a frame and the socket only C runs, whose types are immutable: an answer can patch `json.JSONEncoder` or
`socket.socket` in the worker's process.
"""

import socket
import struct
from _socket import socket as c_socket
from collections.abc import Callable
from dataclasses import dataclass, field
from json import encoder, scanner
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import torch

MAX_HEADER = 1 << 24
MAX_BODY = 1 << 28
MAX_DEPTH = 40
MAX_NODES = 400_000
MAX_SHARED = 1 << 30  # bytes of tensors, counted with repetitions
MAX_ITEMS = 100_000  # items of an iterator
MAX_TEXT = 1 << 20
MAX_BITS = 1 << 14  # bits of an int

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.complex128, torch.complex64, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    )
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
PREFIX = struct.Struct("<IQ")
Weights = dict[int, tuple[int, int]]  # number of an object -> its parts, with shared ones each time, and its bytes
Left = Callable[[], float] | None  # how many seconds are left; None sets no limit


_send, _recv, _set_timeout, _set_blocking = c_socket.send, c_socket.recv, c_socket.settimeout, c_socket.setblocking


def _unknown(value: Any) -> None:
    raise TypeError(f"{type(value).__name__} has no place in a header")


# Without indents, sorting and a look for circles: a header's lists are a tree. Numbers may be NaN and infinite.
_encoder, _scanner = vars(encoder)["c_make_encoder"], vars(scanner)["c_make_scanner"]
_written = _encoder(None, _unknown, encoder.encode_basestring_ascii, None, ":", ",", False, False, True)
_read = _scanner(
    SimpleNamespace(
        strict=True,
        object_hook=None,
        object_pairs_hook=None,
        parse_float=float,
        parse_int=int,
        parse_constant={"NaN": nan, "Infinity": inf, "-Infinity": -inf}.__getitem__,
    )
)


class ProtocolError(Exception):
    """A frame broke a rule of the protocol."""


class UnsendableError(Exception):
    """A value is too large, too deep or endless; the message says which."""


class Closed(Exception):  # noqa: N818 (the other side ended: an event, which its callers turn into a verdict)
    """The other side closed the connection, for example because its process ended."""


@dataclass(frozen=True)
class Foreign:
    """A placeholder for a value that does not cross: its type's name, without behaviour."""

    type_name: str

    def __str__(self):
        return f"<{self.type_name} object>"


@dataclass
class Frame:
    """A message: a JSON-able header, and the buffers its nodes refer to, in order."""

    header: list
    buffers: list = field(default_factory=list)


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    sizes = [len(data) for data in frame.buffers]
    header = "".join(_written([sizes, frame.header], 0)).encode("ascii")
    body = b"".join(frame.buffers)
    if len(header) > MAX_HEADER or len(body) > MAX_BODY:
        raise UnsendableError(f"a message of {(len(header) + len(body)) >> 20} MiB")
    return PREFIX.pack(len(header), len(body)) + header + body


def lengths(prefix: bytes | bytearray) -> tuple[int, int]:
    """Return header and body length from the first bytes of a frame."""
    header, body = PREFIX.unpack(prefix)
    if header > MAX_HEADER or body > MAX_BODY:
        raise ProtocolError(f"a frame of {header:,} + {body:,} bytes is over the limit")
    return header, body


def unpack(header: bytes, body: Any) -> Frame:
    """Return the frame from a header's and a body's bytes."""
    try:
        text = header.decode("ascii")
        (sizes, message), end = _read(text, 0)
        if end != len(text):
            raise ValueError("more than a list")
    except (ValueError, TypeError, RecursionError, StopIteration) as error:
        raise ProtocolError("the header is not a JSON list of two") from error
    if type(message) is not list or type(sizes) is not list or any(type(n) is not int or n < 0 for n in sizes):
        raise ProtocolError("the header is not a list of buffer sizes and a message")
    if sum(sizes) != len(body):
        raise ProtocolError("the buffer sizes do not add up to the body")
    view, buffers, start = memoryview(body), [], 0
    for size in sizes:
        buffers.append(view[start : start + size])
        start += size
    return Frame(message, buffers)


def send(sock: socket.socket, frame: Frame, left: Left = None) -> None:
    """Write a frame to a socket; raise TimeoutError once `left()` reaches 0."""
    send_bytes(sock, pack(frame), left)


def send_bytes(sock: socket.socket, data: bytes, left: Left = None) -> None:
    """Write a packed frame to a socket."""
    rest = memoryview(data)
    while rest:
        rest = rest[_within(left, sock, _send, rest[: 1 << 20]) :]


def receive(sock: socket.socket, left: Left = None) -> Frame:
    """Read the next frame from a socket, and nothing after it; raise TimeoutError once `left()` reaches 0."""
    return Incoming(sock, ahead=0).receive(left)


class Incoming:
    """Reads frames from a socket, up to `ahead` bytes more at a time: a small frame takes one read."""

    def __init__(self, sock: socket.socket, ahead: int = 1 << 16):
        self.sock, self.ahead, self.data = sock, ahead, bytearray()

    def receive(self, left: Left = None) -> Frame:
        """Return the next frame; raise TimeoutError once `left()` reaches 0."""
        _, header, body = self.parts(left)
        return unpack(header, body)

    def parts(self, left: Left = None) -> tuple[bytes, bytes, bytearray]:
        """Return the next frame's first bytes, header and body."""
        prefix = self.read(PREFIX.size, left)
        header, body = lengths(prefix)
        return bytes(prefix), bytes(self.read(header, left)), self.read(body, left)

    def waiting(self) -> bool:
        """Return whether there is unread input, or the other side has ended."""
        _set_blocking(self.sock, False)
        try:
            return bool(self.data) or _recv(self.sock, 1, socket.MSG_PEEK) is not None
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def read(self, size: int, left: Left) -> bytearray:
        """Return the next bytes."""
        while (missing := size - len(self.data)) > 0:  # grows with what arrives: a promised length costs nothing
            part = _within(left, self.sock, _recv, min(max(missing, self.ahead), 1 << 20))
            if not part:
                raise Closed
            self.data += part
        data, self.data = self.data[:size], self.data[size:]
        return data


def _within(left: Left, sock, operation, argument):
    """Do one operation on a socket within the remaining time."""
    while True:
        if left is not None:
            seconds = left()
            if seconds <= 0:
                raise TimeoutError
            _set_timeout(sock, seconds)
        try:
            return operation(sock, argument)
        except TimeoutError:
            continue  # `left` decides: it may have grown meanwhile
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
