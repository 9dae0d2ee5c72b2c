"""Compare by what ranks divide their losses: a mean over weights or masks is no mean over samples.

Before a backward pass `Terms` are read from the graph of the loss: for each sum over data that the loss contains, its
coefficient, for example 1 / n for a mean over n samples. A rank's gradient counts n_r / N, so the ranks' means give the
mean over all samples only if coefficient times n_r is the same on every rank. That does not find sums, whose
coefficients are equal without a division by n_r, and losses that combine samples with each other: `Terms` note both.

A checkpoint, hpcdl's or torch's reentrant one, has no graph inside until its backward pass calls `backward` again:
that part is read then.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from hpcdl.ddp.mixing import meeting, mixed_numbers
from hpcdl.ddp.walk import WHOLE, Divided, Walk


class Terms:
    """What the loss of one backward pass contains.

    `coefficients` are those of sums over data; None if the graph has a part that is not known, and `unread` says which.
    `elementwise` are parameters that the loss uses only in sums over their elements, such as a penalty; `users` are the
    wrappers that got gradients, and how many samples each counted in a forward pass. `divided` has the divisors of each
    sum over data, and `mixed` the lengths of first axes along which samples meet, if the axis is theirs: before and
    after. `nested`: the loss contains gradients of parameters.
    """

    def __init__(self, roots: Sequence[torch.Tensor], gradients: Any, nested: bool = False):
        self.nested = nested
        self.users: dict[int, frozenset[float]] = {}
        self.elementwise: set[int] = set()
        self._other: set[int] = set()
        self._data: list[Any] = []
        self.divided: list[Divided] = []
        self.mixed: set[tuple[int, int]] = set()
        self._coefficients: list[float] = []
        self._unread = ""
        self._inside: dict[int, tuple[Any, Divided]] = {}  # nodes that may have a graph inside, by their identity
        self._read(roots, gradients, WHOLE)

    def _read(self, roots: Sequence[torch.Tensor], gradients: Any, divided: Divided) -> None:
        walk = Walk(self)
        try:
            # A mode, such as a counter of flops, must not see what is read.
            with _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext():
                for root, gradient in zip(roots, gradients, strict=True):
                    walk.begin(root, gradient, divided)
        except Exception as error:  # a graph of a kind that is not known here
            self.note_unread(f"reading it raises {type(error).__name__}")
            self.elementwise = set()
        if self.elementwise:
            used = {id(leaf) for node in self._data for leaf in leaves_of(node)}
            self.elementwise -= self._other | used

    def note_unread(self, why: str, node: Any = None) -> None:
        """Note a part of the graph that is not known, at `node` if it has one; the first counts."""
        self._unread = self._unread or why
        if node is not None:
            self._data.append(node)

    def note_inside(self, node: Any, divided: Divided) -> None:
        """Note a node that may have a graph inside."""
        self._data.append(node)
        self._inside[id(node)] = node, divided

    def note_sum(self, node: Any, factor: float, divided: Divided | None) -> None:
        """Note a sum over data, with its coefficient and, if it is one over samples, what divides it."""
        self._data.append(node)
        self._coefficients += [factor] if (mixed := mixed_numbers(node)) is None else [factor, mixed]
        self.mixed |= meeting(node)
        if divided is not None:
            self.divided.append(divided)

    def note_weights(self, leaves: Iterable[torch.Tensor], elementwise: bool) -> None:
        """Note parameters that the loss has without data, in a sum over elements or in another way."""
        (self.elementwise if elementwise else self._other).update(map(id, leaves))

    @property
    def unread(self) -> str:
        """Return why a part of the graph is not known, such as "it has CompiledFunctionBackward"; else ""."""
        names = (f"it has {node.name()}" for node, _ in self._inside.values())
        return self._unread or next(names, "")

    @property
    def coefficients(self) -> list[float] | None:
        return None if self.unread and not self.nested else self._coefficients

    def expect(self) -> None:
        """Read the graph inside a node of Python's when its backward pass, which may be of a checkpoint, calls another.

        `hpcdl.ddp.backward_passes` gives `reads_loss` what that pass begins with.
        """
        for node, divided in self._inside.values():
            node.reads_loss = partial(self._read_inside, id(node), divided)

    def _read_inside(self, node: int, divided: Divided, roots: Sequence[torch.Tensor], gradients: Any) -> None:
        pairs = [(x, by) for x, by in zip(roots, gradients, strict=True) if isinstance(x, torch.Tensor) and not x.dim()]
        if pairs and node in self._inside:
            self._inside.pop(node)[0].__dict__.pop("reads_loss", None)
            self._read([x for x, _ in pairs], [by for _, by in pairs], divided)
            self.expect()

    def end(self) -> None:
        """End the pass: what has not been read by now is not known."""
        self.note_unread(self.unread)
        for node, _ in self._inside.values():
            node.__dict__.pop("reads_loss", None)
        self._inside, self._data = {}, []

    def is_no_mean(self, counts: Sequence[float]) -> bool:
        """Return whether the loss is a sum or mixes samples, if forward passes had `counts` samples."""
        return self.mixes(counts) or any(each.is_below(min(counts)) for each in self.divided)

    def mixes(self, counts: Sequence[float]) -> bool:
        """Return whether the loss combines samples with each other, if forward passes had `counts` samples."""
        return self.nested or any(
            axis > 1 and count % axis == 0 and after not in counts for axis, after in self.mixed for count in counts
        )


def leaves_of(node: Any) -> Iterator[torch.Tensor]:
    """Yield all parameters and other leaves below `node`."""
    todo, seen = [node], {node}
    while todo:
        each = todo.pop()
        if hasattr(each, "variable"):
            yield each.variable
        new = {child for child, _ in each.next_functions if child is not None} - seen
        seen |= new
        todo += new
