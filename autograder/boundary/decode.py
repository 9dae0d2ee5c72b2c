"""Wire nodes to values, trusting nothing: each node's form and each length is checked before it is used."""

import fractions
from collections.abc import Sequence
from typing import Any

import torch

from hpcdl.numerics.rounding import FLOATS, Fixed

from .protocol import DTYPES, MAX_BITS, MAX_DEPTH, MAX_NODES, MAX_SHARED, Foreign, Frame, ProtocolError, Weights


class Decoder:
    """Reads the nodes of one frame. `known` are the objects that both sides have numbered already, with their
    `weights`.

    `peer` turns handles into proxies; without `objects` a handle on anything except a function arrives as `Foreign`, so
    no operator of a student's object can affect a comparison. `grads` keeps `requires_grad`.
    """

    def __init__(
        self,
        frame: Frame,
        peer: Any = None,
        known: Sequence[Any] = (),
        weights: Weights | None = None,
        *,
        objects: bool = False,
        grads: bool = False,
    ):
        self.peer, self.objects, self.grads = peer, objects, grads
        self.buffers = iter(frame.buffers)
        self.numbered = list(known)
        self.original: dict[int, tuple] = {}  # number of an object -> its content when read, to detect changes
        self.nodes = self.bytes_read = 0
        self.weights: Weights = dict(weights or {})

    def read(self, node: Any, depth: int = 0):
        """Return the value of `node`."""
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ProtocolError("too many parts, or nested too deep")
        if node is None or type(node) in (bool, int, float, str):
            return node
        if type(node) is not list or not node or type(node[0]) is not str or node[0] not in DECODERS:
            raise ProtocolError("a node is neither a plain value nor a list with a known tag")
        return DECODERS[node[0]](self, node, depth)

    def ref(self, node: Any, depth: int):
        (number,) = parts(node, int)
        if not 0 <= number < len(self.numbered):
            raise ProtocolError("a reference to nothing")
        nodes, size = self.weights.get(number, (0, 0))  # shared parts are small to send, but not small to compare
        self.nodes, self.bytes_read = self.nodes + nodes, self.bytes_read + size
        if self.nodes > MAX_NODES or self.bytes_read > MAX_SHARED:
            raise ProtocolError("too many parts, for what they share")
        return self.numbered[number]

    def list(self, node: Any, depth: int):
        number, value = len(self.numbered), self.remember([])
        before = self.nodes, self.bytes_read
        value.extend([self.read(item, depth + 1) for item in node[1:]])
        self.weights[number] = self.nodes - before[0], self.bytes_read - before[1]
        self.original[number] = items_of(value)
        return value

    def dict(self, node: Any, depth: int):
        number, value = len(self.numbered), self.remember({})
        before = self.nodes, self.bytes_read
        for pair in node[1:]:
            if type(pair) is not list or len(pair) != 2:
                raise ProtocolError("a dict holds something that is not a pair")
            key = hashable(self.read(pair[0], depth + 1))
            value[key] = self.read(pair[1], depth + 1)
        self.weights[number] = self.nodes - before[0], self.bytes_read - before[1]
        self.original[number] = items_of(value)
        return value

    def tuple(self, node: Any, depth: int):
        return tuple(self.read(item, depth + 1) for item in node[1:])

    def set(self, node: Any, depth: int):
        return {hashable(self.read(item, depth + 1)) for item in node[1:]}

    def tensor(self, node: Any, depth: int):
        name, shape, needs_grad = parts(node, str, list, bool)
        data = self.buffer()
        value = tensor_from(name, shape, data)
        if self.grads and needs_grad:
            value.requires_grad_()
        self.weights[len(self.numbered)] = 1, len(data)
        self.bytes_read += len(data)
        return self.remember(value, (name, shape, data))

    def generator(self, node: Any, depth: int):
        data = self.buffer()
        value = torch.Generator()
        try:
            value.set_state(tensor_from("uint8", [len(data)], data))
        except RuntimeError as error:
            raise ProtocolError("not the state of a generator") from error
        return self.remember(value, (data,))

    def mine(self, node: Any, depth: int):
        number, kind, name = parts(node, int, str, str)
        if self.peer is None or (kind != "function" and not self.objects):
            return Foreign(name[:120])
        return self.peer.proxy(number, kind == "function", name[:120])

    def yours(self, node: Any, depth: int):
        (number,) = parts(node, int)
        if self.peer is None or number not in self.peer.exports:
            raise ProtocolError("a handle that was never given out")
        return self.peer.exports[number]

    def buffer(self):
        data = next(self.buffers, None)
        if data is None:
            raise ProtocolError("fewer buffers than the header says")
        return data

    def remember(self, value: Any, original: Any = None):
        if original is not None:
            self.original[len(self.numbered)] = original
        self.numbered.append(value)
        return value


def items_of(value: list | dict) -> tuple:
    """Return the items of a list or dict, to compare by identity: items report their own changes."""
    return (*value, *value.values()) if type(value) is dict else tuple(value)


def parts(node: Any, *types: type):
    """Return the parts of a node after its tag, which must have exactly these types."""
    if [type(part) for part in node[1:]] != list(types):
        raise ProtocolError(f"a malformed {node[0]} node")
    return node[1:]


def tensor_from(name: str, shape: list, data: Any) -> torch.Tensor:
    """Return a new tensor from a dtype's name, a list of sizes and exactly as many bytes as they need."""
    dtype = dtype_from(name)
    if len(shape) > 25 or any(type(n) is not int or n < 0 for n in shape):
        raise ProtocolError("a shape is a list of at most 25 sizes")
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size != len(data):
        raise ProtocolError("the bytes of a tensor are not as many as its shape needs")
    try:
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        if dtype is torch.bool:  # any byte but 0 is true; a bool tensor over other bytes would be undefined behaviour
            return torch.frombuffer(bytearray(data), dtype=torch.uint8).ne(0).reshape(shape)
        flat = torch.frombuffer(bytearray(data), dtype=dtype)
        return flat if len(shape) == 1 else flat.reshape(shape)
    except (RuntimeError, TypeError) as error:
        raise ProtocolError("a shape that no tensor has") from error


def dtype_from(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ProtocolError(f"no dtype {name[:20]!r}")
    return DTYPES[name]


def read_int(decoder: "Decoder", node: Any, depth: int):
    (text,) = parts(node, str)
    try:
        if len(text) <= len("-0x") + MAX_BITS // 4:
            return int(text, 16)
    except ValueError:
        pass
    raise ProtocolError("an int that is not short hexadecimal text")


def read_range(decoder: "Decoder", node: Any, depth: int):
    start, stop, step = parts(node, int, int, int)
    if step == 0:
        raise ProtocolError("a range of step 0")
    return range(start, stop, step)


def read_fraction(decoder: "Decoder", node: Any, depth: int):
    numbers = [decoder.read(part, depth + 1) for part in node[1:]]
    if [type(n) for n in numbers] != [int, int] or numbers[1] == 0:
        raise ProtocolError("a fraction is two ints")
    return fractions.Fraction(*numbers)


def read_fixed(decoder: "Decoder", node: Any, depth: int):
    try:
        return Fixed(*parts(node, int, int))
    except ValueError as error:
        raise ProtocolError(str(error)) from error


def read_format(decoder: "Decoder", node: Any, depth: int):
    (name,) = parts(node, str)
    if name not in FLOATS:
        raise ProtocolError(f"no number format {name[:20]!r}")
    return FLOATS[name]


def hashable(key: Any):
    """Return `key` if it is a plain hashable value; otherwise raise ProtocolError."""
    if type(key) in (tuple, frozenset):
        return type(key)(map(hashable, key))
    if type(key) not in (type(None), bool, int, float, str, bytes, complex, range, fractions.Fraction, torch.dtype):
        raise ProtocolError("a key or an element of a set is not a plain value")
    return key


DECODERS = {
    "ref": Decoder.ref,
    "list": Decoder.list,
    "dict": Decoder.dict,
    "tuple": Decoder.tuple,
    "set": Decoder.set,
    "frozenset": lambda decoder, node, depth: frozenset(decoder.set(node, depth)),
    "tensor": Decoder.tensor,
    "generator": Decoder.generator,
    "mine": Decoder.mine,
    "yours": Decoder.yours,
    "bytes": lambda decoder, node, depth: bytes(decoder.buffer()),
    "int": read_int,
    "complex": lambda decoder, node, depth: complex(*parts(node, float, float)),
    "range": read_range,
    "fraction": read_fraction,
    "dtype": lambda decoder, node, depth: dtype_from(*parts(node, str)),
    "fixed": read_fixed,
    "format": read_format,
    "foreign": lambda decoder, node, depth: Foreign(parts(node, str)[0][:120]),
}
