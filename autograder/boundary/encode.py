"""Values to wire nodes. It checks only exact types, so no code of a student's object runs unless it is an iterator.
A named tuple, or another subclass of tuple, is sent as a tuple, except where a handle on an object is asked for: its
items are read past its own methods.

Lists, dicts, tensors and generators are numbered in the order of first use: a value that occurs twice is one object on
the other side too, and a callee can report the final content of its arguments. A value without a plain form is sent as
`foreign`, a type name, or as a handle on an object that stays where it is.
"""

import collections
import fractions
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from hpcdl.numerics.rounding import FLOATS, Fixed, Float

from . import protocol
from .protocol import DTYPE_NAMES, MAX_BODY, MAX_NODES, Foreign, UnsendableError, Weights

# Exact types that are sent as the equivalent plain type.
ALIASES = {
    torch.Size: tuple,
    torch.nn.Parameter: torch.Tensor,
    collections.OrderedDict: dict,
    collections.defaultdict: dict,
    collections.Counter: dict,
    collections.deque: list,
    bytearray: bytes,
}
NUMBERED = (list, dict, torch.Tensor, torch.Generator)
NUMPY_NUMBERS = {np.dtype(code).type for code in "?bhilqBHILQefdFD"}
NUMPY_DTYPES = {dtype for dtype, name in DTYPE_NAMES.items() if name in np.sctypeDict}
# What a tensor holds, whatever attributes and modes of torch's an answer has set: they would come before its methods.
DETACH: Any = torch.Tensor.detach
NO_FUNCTION_MODES: Any = torch._C.DisableTorchFunction
NO_DISPATCH_MODES: Any = torch._C._DisableTorchDispatch
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


class Encoder:
    """Collects nodes and buffers of one message. `known` are the objects that the other side has numbered already, with
    their `weights`.

    `peer` gives out handles (without one there are none); `objects` allows handles on any object, not only functions;
    `iterate` turns iterators into lists.
    """

    def __init__(
        self,
        peer: Any = None,
        known: Sequence[Any] = (),
        weights: Weights | None = None,
        *,
        objects: bool = False,
        iterate: bool = False,
    ):
        self.peer, self.objects, self.iterate = peer, objects, iterate
        self.buffers: list = []
        self.numbered = list(known)
        self.number = {id(value): i for i, value in enumerate(self.numbered)}
        self.nodes = self.size = 0
        self.weights: Weights = dict(weights or {})

    def write(self, value: Any, depth: int = 0):
        """Return the node of `value`: a plain value or a tagged list."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise UnsendableError(f"it has more than {MAX_NODES:,} parts")
        if depth > protocol.MAX_DEPTH:
            raise UnsendableError(f"it is nested more than {protocol.MAX_DEPTH} deep")
        if type(value) in PLAIN_ENCODERS:
            return PLAIN_ENCODERS[type(value)](value)
        if ALIASES.get(type(value), type(value)) in NUMBERED:
            if id(value) in self.number:
                number = self.number[id(value)]
                self.nodes += self.weights.get(number, (0, 0))[0]
                return ["ref", number]
            before, number = (self.nodes, self.size), len(self.numbered)
            self.number[id(value)] = number
            self.numbered.append(value)
            node = self.contents(value, depth)
            self.weights[number] = self.nodes - before[0], self.size - before[1]
            return node
        return self.contents(value, depth)

    def contents(self, value: Any, depth: int = 0):
        """Return the node of the current content of `value`, even if the other side has already numbered it."""
        kind = ALIASES.get(type(value), type(value))
        if issubclass(kind, tuple) and (self.peer is None or not self.objects):
            kind, value = tuple, tuple.__getitem__(value, slice(None))
        if kind in PLAIN_ENCODERS:
            return PLAIN_ENCODERS[kind](value)
        if kind in ENCODERS:
            return ENCODERS[kind](self, value, depth)
        if kind in NUMPY_NUMBERS:
            return self.write(value.item(), depth)
        return self.other(value, kind, depth)

    def items(self, tag: str, value: Any, depth: int):
        if len(value) > MAX_NODES:  # before anything is copied
            raise UnsendableError(f"it has more than {MAX_NODES:,} parts")
        return [tag, *[self.write(item, depth + 1) for item in value]]

    def dict(self, value: Any, depth: int):
        return ["dict", *[[self.write(k, depth + 1), self.write(v, depth + 1)] for k, v in value.items()]]

    def tensor(self, value: Any, depth: int):
        with NO_FUNCTION_MODES(), NO_DISPATCH_MODES():
            return self.plain(DETACH(value), value.requires_grad)

    def plain(self, value: Any, requires_grad: bool):
        if value.layout is not torch.strided or value.is_meta or value.dtype not in DTYPE_NAMES:
            return ["foreign", odd_tensor(value)]
        self.room(value.numel() * value.element_size())  # an expanded tensor is small until it is copied
        self.add(raw(value))
        return ["tensor", DTYPE_NAMES[value.dtype], list(value.shape), requires_grad]

    def bytes(self, value: Any, depth: int):
        self.add(bytes(value))
        return ["bytes"]

    def generator(self, value: Any, depth: int):
        if value.device.type != "cpu":
            return ["foreign", f"torch.Generator on {value.device.type}"]
        self.add(raw(value.get_state()))
        return ["generator"]

    def other(self, value: Any, kind: type, depth: int):
        if self.peer is not None and self.peer.is_proxy(value):
            return ["yours", self.peer.proxy_id(value)]
        if kind is Foreign:
            return ["foreign", value.type_name]
        if self.iterate and hasattr(kind, "__next__"):
            return self.items("list", all_items(value), depth)
        is_function = kind in FUNCTIONS or (callable(value) and not self.iterate)
        if self.peer is not None and (is_function or self.objects):
            return ["mine", self.peer.export(value), "function" if is_function else "object", name_of(value, kind)]
        return ["foreign", type_name(kind)]

    def add(self, data: Any) -> None:
        self.room(len(data))
        self.size += len(data)
        self.buffers.append(data)

    def room(self, size: int) -> None:
        if self.size + size > MAX_BODY:
            raise UnsendableError(f"it has more than {MAX_BODY >> 20} MiB")


def write_int(value: int):
    if value.bit_length() > protocol.MAX_BITS:
        raise UnsendableError(f"an int in it has {value.bit_length():,} bits")
    return ["int", hex(value)] if value.bit_length() > 63 else value


def write_str(value: str):
    if len(value) > protocol.MAX_TEXT:
        raise UnsendableError(f"a string in it has {len(value):,} characters")
    return value


def write_range(value: range):
    parts = (value.start, value.stop, value.step)
    return ["range", *parts] if all(part.bit_length() < 64 for part in parts) else ["foreign", "range"]


def write_format(value: Float):
    return ["format", value.name] if any(value is known for known in FLOATS.values()) else ["foreign", "Float"]


PLAIN_ENCODERS = {
    type(None): lambda value: value,
    bool: lambda value: value,
    float: lambda value: value,
    int: write_int,
    str: write_str,
    complex: lambda value: ["complex", value.real, value.imag],
    range: write_range,
    fractions.Fraction: lambda value: ["fraction", write_int(value.numerator), write_int(value.denominator)],
    torch.dtype: lambda value: ["dtype", str(value).removeprefix("torch.")],
    Fixed: lambda value: ["fixed", value.il, value.fl],
    Float: write_format,
}
ENCODERS = {
    list: lambda encoder, value, depth: encoder.items("list", value, depth),
    tuple: lambda encoder, value, depth: encoder.items("tuple", value, depth),
    set: lambda encoder, value, depth: encoder.items("set", value, depth),
    frozenset: lambda encoder, value, depth: encoder.items("frozenset", value, depth),
    dict: Encoder.dict,
    bytes: Encoder.bytes,
    torch.Tensor: Encoder.tensor,
    torch.Generator: Encoder.generator,
}


def raw(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor without gradient, in row-major order."""
    if tensor.dtype in NUMPY_DTYPES and tensor.is_cpu and not tensor.is_conj() and not tensor.is_neg():
        return tensor.numpy().tobytes()  # ten times as fast as the rest
    if not tensor.numel():
        return b""
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    # A single element may keep any stride and count as contiguous; a clone's stride is 1.
    return tensor.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy().tobytes()


def odd_tensor(value: torch.Tensor) -> str:
    if value.is_meta:
        return "torch.Tensor on the meta device (it has no data)"
    if value.layout is not torch.strided:
        return f"{str(value.layout).removeprefix('torch.')} torch.Tensor"
    return f"{str(value.dtype).removeprefix('torch.')} torch.Tensor"


def all_items(iterator: Iterator) -> list:
    """Return the items of a student's iterator; raise UnsendableError if there are too many."""
    items = []
    for item in iterator:
        items.append(item)
        if len(items) > protocol.MAX_ITEMS:
            raise UnsendableError(f"it gives more than {protocol.MAX_ITEMS:,} items; does its loop end?")
    return items


def type_name(kind: type) -> str:
    """`numpy.ndarray`, `fractions.Fraction`, or just `Dual` for the student's own class."""
    module, name = (str(type.__getattribute__(kind, part))[:80] for part in ("__module__", "__qualname__"))
    return name if module in ("builtins", "__main__", "student") else f"{module}.{name}"


def name_of(value: Any, kind: type) -> str:
    """Return the name of a function, or of a check's object that represents one."""
    ours = str(type.__getattribute__(kind, "__module__")).startswith("autograder.")
    name = getattr(value, "__name__", None) if kind in FUNCTIONS or ours else None
    return name if type(name) is str else type_name(kind)
