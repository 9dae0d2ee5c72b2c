"""What one side of a channel has not written is never received: changed, left out, twice, in another order."""

import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.boundary import protocol
from autograder.boundary.channel import KEY, SEAL, BrokenSealError, Channel
from autograder.boundary.protocol import Closed, Frame

MESSAGES = [Frame(["reply", i, "x" * i], [bytes(range(i))]) for i in range(4)]


def written(key=b"k" * KEY, messages=MESSAGES, worker=True) -> list[bytes]:
    """The bytes of each message, as its side sends them."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel, found = Channel(ours, key, worker=worker), []
        for message in messages:
            channel.send(message)
            found.append(theirs.recv(1 << 16))
    return found


def received(parts: list[bytes]) -> list[list]:
    """The headers that the grader accepts from these bytes, before an error or the end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(parts))
        theirs.shutdown(socket.SHUT_WR)
        channel, found = Channel(ours, b"k" * KEY), []
        try:
            while True:
                found.append(channel.receive(lambda: 10.0).header)
        except (BrokenSealError, Closed):
            return found


HEADERS = [message.header for message in MESSAGES]


def test_what_was_written_is_received():
    assert received(written()) == HEADERS


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_changed_byte_ends_what_is_received(data):
    parts = written()
    number = data.draw(st.integers(0, len(parts) - 1))
    at, by = data.draw(st.integers(0, len(parts[number]) - 1)), data.draw(st.integers(1, 255))
    changed = bytearray(parts[number])
    changed[at] ^= by
    assert received([*parts[:number], bytes(changed), *parts[number + 1 :]]) == HEADERS[:number]


@given(st.lists(st.integers(0, len(MESSAGES) - 1), max_size=6))
def test_only_the_order_of_writing_is_received(order):
    parts = written()
    same = next((i for i, (number, place) in enumerate(zip(order, range(9), strict=False)) if number != place), None)
    right = len(order) if same is None else same
    assert received([parts[number] for number in order]) == HEADERS[: min(right, len(MESSAGES))]


def test_who_lacks_the_key_writes_nothing():
    assert received(written(key=b"?" * KEY)) == []
    bare = protocol.pack(MESSAGES[1])
    assert (
        received([bare]) == received([bytes(SEAL) + bare]) == received([struct.pack("<QQIQ", 0, 0, 1, 1 << 60)]) == []
    )


def test_what_the_grader_has_written_is_no_answer():
    assert received(written(worker=False)) == []


def test_a_frame_over_the_limit_is_refused_before_it_is_read():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(bytes(SEAL) + struct.pack("<IQ", 1 << 31, 1 << 60))
        with pytest.raises(BrokenSealError):
            Channel(ours, b"k" * KEY).receive(lambda: 10.0)
