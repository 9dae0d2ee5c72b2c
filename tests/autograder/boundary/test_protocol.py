"""Values cross as exact plain types or not at all; broken frames are refused, whatever is in them."""

import collections
import contextlib
import fractions
import socket
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.boundary import protocol
from autograder.boundary.decode import DECODERS, Decoder
from autograder.boundary.encode import Encoder
from autograder.boundary.protocol import DTYPES, Foreign, Frame, ProtocolError, UnsendableError
from autograder.checks import same


def cross(value, **options):
    writer = Encoder(**options)
    frame = Frame(["value", writer.write(value)], writer.buffers)
    data = protocol.pack(frame)
    header, _ = protocol.lengths(data[: protocol.PREFIX.size])
    start = protocol.PREFIX.size
    frame = protocol.unpack(data[start : start + header], data[start + header :])
    return Decoder(frame).read(frame.header[1])


scalars = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    *(st.complex_numbers(allow_nan=False), st.fractions()),
)
tensors = st.builds(
    lambda dtype, shape: torch.randint(0, 2, shape).to(dtype),
    st.sampled_from(list(DTYPES.values())),
    st.lists(st.integers(0, 3), max_size=4),
)
values = st.recursive(
    scalars | tensors,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


def alike(a, b):
    if type(a) in (list, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if type(a) is dict:
        return type(b) is dict and list(a) == list(b) and all(alike(a[key], b[key]) for key in a)
    return (type(a) is type(b) and a == b) if type(a) is fractions.Fraction else same(a, b)


@settings(max_examples=150, deadline=None)
@given(values)
def test_a_plain_value_arrives_as_it_was(value):
    assert alike(value, cross(value))


class Pair(collections.namedtuple("Pair", "first second")):
    def __len__(self):
        return 1

    def __iter__(self):
        return iter([7])


def test_a_subclass_of_tuple_arrives_as_the_tuple_that_it_is():
    values, indices = cross(torch.tensor([[1.0, 3.0]]).max(1))
    assert (values.item(), indices.item(), cross((Pair(1, 2),))) == (3.0, 1, ((1, 2),))


@pytest.mark.parametrize("special", [0.0, -0.0, float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308])
def test_floats_keep_their_bits(special):
    assert np.float64(cross(special)).tobytes() == np.float64(special).tobytes()


def test_an_argument_that_comes_back_counts_each_time():
    writer = Encoder()
    writer.write(xs := list(range(1000)))
    answer = ["list", *[["ref", 0]] * 1000]
    with pytest.raises(ProtocolError, match="too many parts"):
        Decoder(Frame([]), None, writer.numbered, writer.weights).read(answer)
    with pytest.raises(UnsendableError, match="more than 400,000 parts"):
        Encoder(None, writer.numbered, writer.weights).write([xs] * 1000)


def test_an_int_is_as_short_for_the_reader_as_for_the_writer():
    longest = 2**protocol.MAX_BITS - 1
    assert cross(-longest) == -longest
    with pytest.raises(UnsendableError, match="an int in it has 16,385 bits"):
        cross(longest + 1)
    with pytest.raises(ProtocolError, match="short hexadecimal"):
        Decoder(Frame([])).read(["int", hex(256 * longest)])


def test_nan_payloads_and_strides_of_tensors_do_not_matter():
    x = torch.arange(12.0).reshape(3, 4)
    x[0, 0] = torch.nan
    for view in (x.T, x[:, 1], x[::2], x.expand(2, 3, 4), x[0, 0], torch.view_as_complex(x.reshape(3, 2, 2)).conj()):
        arrived = cross(view)
        assert arrived.shape == view.shape
        assert torch.equal(torch.view_as_real(arrived + 0j).isnan(), torch.view_as_real(view + 0j).isnan())
        assert torch.equal(arrived.nan_to_num(7), view.resolve_conj().nan_to_num(7))


def test_every_slice_of_a_tensor_arrives():
    x = torch.arange(12)
    for part in (x[3::4], x[3::9], x[11::4], x.view(3, 4)[:, 1:2], x[5:5]):
        assert alike(cross(part), part.clone())


def test_a_value_that_occurs_twice_is_one_object_on_the_other_side():
    x = torch.ones(2)
    items = [x, {"x": x}]
    items.append(items)
    arrived = cross(items)
    assert arrived[0] is arrived[1]["x"]
    assert arrived[2] is arrived


class Liar(float):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class LyingTensor(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Liar(1), "Liar"),
        (torch.ones(2).as_subclass(LyingTensor), "LyingTensor"),
        (np.ones(3), "numpy.ndarray"),
        (torch.ones(2, device="meta"), "meta"),
        (torch.eye(2).to_sparse(), "sparse"),
        (object(), "object"),
        (lambda: 1, "function"),
    ],
)
def test_what_is_not_exactly_a_plain_type_arrives_as_a_name(value, name):
    arrived = cross(value)
    assert type(arrived) is Foreign
    assert name in arrived.type_name


def test_numpy_numbers_arrive_as_plain_types():
    arrived = cross(
        [np.float64(0.5), np.int32(3), np.bool_(True), torch.nn.Parameter(torch.ones(1)), torch.ones(2).shape]
    )
    assert [type(value) for value in arrived] == [float, int, bool, torch.Tensor, tuple]


def test_gradients_stay_behind_where_the_grader_reads():
    assert not cross(torch.ones(2, requires_grad=True)).requires_grad


def test_an_endless_or_huge_value_is_refused_before_it_is_copied():
    def endless():
        while True:
            yield 1

    deep = []
    for _ in range(100):
        deep = [deep]
    for value in (endless(), torch.ones(1).expand(1 << 40), deep, [0] * 500_000, 1 << 20_000, "x" * (2 << 20)):
        with pytest.raises(UnsendableError):
            cross(value, iterate=True)


json_nodes = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(["float32", "ff", "x", "function"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.builds(
            lambda tag, rest: [tag, *rest],
            st.sampled_from(list(DECODERS)),
            st.lists(inner, max_size=4),
        )
    ),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(json_nodes, st.lists(st.binary(max_size=16), max_size=3))
def test_no_node_does_more_than_be_refused(node, buffers):
    with contextlib.suppress(ProtocolError):
        Decoder(Frame([], [memoryview(b) for b in buffers])).read(node)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=20))
def test_no_header_does_more_than_be_refused(header, body):
    with contextlib.suppress(ProtocolError):
        protocol.unpack(header, body)


def test_a_frame_too_long_is_refused_from_its_first_bytes():
    with pytest.raises(ProtocolError, match="over the limit"):
        protocol.lengths(protocol.PREFIX.pack(1 << 30, 1 << 50))


def test_half_sent_frame_meets_the_deadline():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(protocol.pack(Frame(["value", "x" * 100]))[:30])
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            protocol.receive(ours, lambda: start + 0.2 - time.monotonic())
        assert time.monotonic() - start < 30  # and not forever


def test_a_large_frame_goes_through_a_socket_in_pieces():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frame = Frame(["value"], [bytes(5 << 20)])
        sender = threading.Thread(target=protocol.send, args=(ours, frame))
        sender.start()
        assert len(protocol.receive(theirs, lambda: 10.0).buffers[0]) == 5 << 20
        sender.join()


def test_a_closed_connection_is_an_event_of_its_own():
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(protocol.Closed):
        protocol.receive(ours, lambda: 1.0)
