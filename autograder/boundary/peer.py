"""One side of the boundary between grader and student code: makes calls, and serves incoming calls.

Both sides are a `Peer`. While one waits for a reply it serves the calls of the other, so that a student's function may
call back a function of the check that was passed to it. Arguments are copied in and, after the call, copied out:
the caller's own lists, dicts, tensors and generators then hold what the callee left in them.

    ["call", target, arguments, keywords, objects, seconds, mark]
                                                        target: [verb, operand], see `verbs`
    ["reply", result, changes, mark]                    changes: [[number of an argument's part, its contents], ...]
    ["error", {"kind": ..., "text": ..., ...}, mark]

The mark is a random number, which the answer repeats: an answer that student code wrote in advance is invalid.
"""

import operator
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from .decode import Decoder, items_of
from .encode import DETACH, NO_DISPATCH_MODES, NO_FUNCTION_MODES, Encoder, raw
from .protocol import DTYPE_NAMES, Frame, ProtocolError


class Peer:
    """The common part of the grader's and the student's side; subclasses say what may be called and how."""

    iterates = False  # whether an iterator in a result is turned into a list (the student's side does)

    def __init__(self):
        self.exports: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}  # id of an exported object -> its number
        self.proxies: dict[int, object] = {}  # number of the other side's object -> our proxy
        self.proxy_numbers: dict[int, int] = {}  # id of a proxy -> that number
        self.count = 0

    # Handles

    def export(self, value: Any) -> int:
        """Return the number by which the other side may call `value`; the same for the same object."""
        if id(value) not in self.numbers:
            self.count += 1
            self.exports[self.count] = value
            self.numbers[id(value)] = self.count
        return self.numbers[id(value)]

    def recall(self) -> None:
        """Forget every handle: nothing given out before can be called again."""
        for table in (self.exports, self.numbers, self.proxies, self.proxy_numbers):
            table.clear()

    def proxy(self, number: int, is_function: bool, name: str):
        """Return this side's stand-in for the other side's object; the same for the same number."""
        if number not in self.proxies:
            self.proxies[number] = self.make_proxy(number, is_function, name)
            self.proxy_numbers[id(self.proxies[number])] = number
        return self.proxies[number]

    def is_proxy(self, value: Any) -> bool:
        return id(value) in self.proxy_numbers

    def proxy_id(self, value: Any) -> int:
        return self.proxy_numbers[id(value)]

    def make_proxy(self, number: int, is_function: bool, name: str):
        def function(*args, **kwargs):
            return self.call(["yours", number], args, kwargs)

        function.__name__ = function.__qualname__ = name
        return function

    # Calling out

    def call(
        self,
        target: list,
        args: Sequence = (),
        kwargs: dict | None = None,
        *,
        objects: bool = False,
        seconds: float | None = None,
    ):
        """Call something on the other side and return the result's value.

        With `objects` the result may be an object on the other side; after `seconds` the call should stop.
        """
        encoder = Encoder(self, objects=objects)
        parts = [encoder.write(tuple(args)), encoder.write(tuple((kwargs or {}).items()))]
        mark = int.from_bytes(os.urandom(6), "big")
        reply = self.ask(Frame(["call", target, *parts, objects, seconds, mark], encoder.buffers))
        if reply.header[:1] == ["error"] and len(reply.header) == 3:
            raise self.error(reply.header[1])
        if reply.header[:1] != ["reply"] or len(reply.header) != 4 or type(reply.header[2]) is not list:
            raise ProtocolError("neither a reply nor an error")
        decoder = Decoder(reply, self, encoder.numbered, encoder.weights, objects=objects)
        result = decoder.read(reply.header[1])
        for change in reply.header[2]:
            self.accept(*read_change(decoder, change, len(encoder.numbered)))
        return result

    def accept(self, argument: Any, contents: Any) -> None:
        """Copy the callee's final contents into one of the caller's objects."""
        assign(argument, contents)

    def ask(self, frame: Frame) -> Frame:
        """Send a call and return its answer, serving the other side's calls meanwhile."""
        raise NotImplementedError

    def error(self, problem: Any) -> Exception:
        """Return the exception for a problem that the other side reports."""
        raise NotImplementedError

    # Serving

    def serve(self, frame: Frame) -> Frame:
        """Return the answer to a call from the other side."""
        try:
            answer = self.perform(frame)
        except Exception as error:
            answer = Frame(["error", self.describe(error)])
        answer.header.append(mark_of(frame))
        return answer

    def perform(self, frame: Frame) -> Frame:
        """Return the answer without its mark."""
        if len(frame.header) != 7 or frame.header[0] != "call" or type(frame.header[4]) is not bool:
            raise ProtocolError("not a call")
        _, target, args, kwargs, objects, *_ = frame.header
        decoder = Decoder(frame, self, objects=self.lends(objects), grads=True)
        args, kwargs = decoder.read(args), decoder.read(kwargs)
        result = self.invoke(target, args, dict(kwargs))
        encoder = Encoder(self, decoder.numbered, decoder.weights, objects=self.lends(objects), iterate=self.iterates)
        node = encoder.write(result)
        return Frame(["reply", node, changes(decoder, encoder)], encoder.buffers)

    def invoke(self, target: Any, args: tuple, kwargs: dict):
        """Do what the verb of `target` says; raise ProtocolError if this side has no such verb."""
        verb, operand = target if type(target) is list and len(target) == 2 else (None, None)
        if type(verb) is not str or verb not in self.verbs:
            raise ProtocolError("a call that this side does not serve")
        return self.verbs[verb](self, operand, args, kwargs)

    def call_exported(self, number: Any, args: tuple, kwargs: dict):
        if number not in self.exports:
            raise ProtocolError("a call of something that was never given out")
        return self.exports[number](*args, **kwargs)

    verbs: ClassVar[dict[str, Callable]] = {"yours": call_exported}  # verb -> f(self, operand, args, kwargs)

    def lends(self, objects: bool) -> bool:
        """Return whether handles on objects may cross in a call that requests them."""
        return objects

    def describe(self, error: BaseException) -> dict:
        """Describe a problem for the other side's `error`."""
        return {"kind": "exception", "type": type(error).__name__, "text": str(error)[:500]}


def mark_of(frame: Frame) -> int | None:
    """Return the mark of a call or an answer, or None."""
    return frame.header[-1] if frame.header and type(frame.header[-1]) is int else None


def changes(decoder: Decoder, encoder: Encoder) -> list:
    """Return the changed arguments: each list, dict, tensor and generator that differs."""
    found = []
    for number in range(len(decoder.numbered)):
        value = decoder.numbered[number]
        if not changed(value, decoder.original.get(number)):
            continue
        encoder.numbered.append(None)  # the decoder numbers the contents separately
        found.append([number, encoder.contents(value)])
    return found


def changed(value: Any, original: Any) -> bool:
    """Return whether a tensor's or generator's bytes, or a list's or dict's items, differ from what was read."""
    if original is None:
        return True
    if type(value) in (list, dict):
        items = items_of(value)
        return len(items) != len(original) or not all(map(operator.is_, items, original))
    if type(value) is torch.Generator:
        return raw(value.get_state()) != original[0]
    name, shape, data = original
    with NO_FUNCTION_MODES(), NO_DISPATCH_MODES():
        plain = DETACH(value)
        form = DTYPE_NAMES.get(plain.dtype), list(plain.shape), plain.layout
        return form != (name, shape, torch.strided) or raw(plain) != data


def read_change(decoder: Decoder, change: Any, known: int) -> tuple:
    """Return one of the caller's objects, and its final contents from the callee."""
    if type(change) is not list or len(change) != 2 or type(change[0]) is not int or not 0 <= change[0] < known:
        raise ProtocolError("a change to something that was not an argument")
    return decoder.numbered[change[0]], decoder.read(change[1])


def assign(target: Any, contents: Any) -> None:
    """Overwrite a list, dict, generator or tensor in place."""
    if type(contents) is not type(target):
        return  # an argument that no longer has a plain form (a sparse or meta tensor): the caller keeps its own
    if type(target) is list:
        target[:] = contents
    elif type(target) is dict:
        target.clear()
        target.update(contents)
    elif type(target) is torch.Generator:
        target.set_state(contents.get_state())
    else:
        assign_tensor(target, contents)


def assign_tensor(target: torch.Tensor, contents: torch.Tensor) -> None:
    with torch.no_grad():
        try:
            if target.shape == contents.shape and target.dtype == contents.dtype:
                target.copy_(contents)
            else:
                target.data = contents
        except RuntimeError as error:  # a view that cannot be written, or another dtype
            raise ProtocolError(f"an argument became something it cannot be: {error}") from error
