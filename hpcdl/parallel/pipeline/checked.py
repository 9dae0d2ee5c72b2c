"""Check that a loss adds up over microbatches: on each one, by what its graph says that it divides by.

The graph (`hpcdl.ddp.losses`) has the coefficient of each sum in the loss. Times the rows it has to be the same for
all microbatches of a mean; for a sum it has to be the same without them. That costs no second loss. Only if the graph
says otherwise, or cannot be read, is the loss tried: of the microbatch and a row of the first one together.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from hpcdl.ddp.losses import Terms, leaves_of
from hpcdl.parallel.pipeline.losses import Loss, reaches_communicator, require_number, tried_as
from hpcdl.parallel.pipeline.values import Value

CLOSE = 1e-5  # relative; losses in float32 have 1e-7
ROUGH = 1e-2  # for losses of any dtype whose graph is right


class AddsUp:
    """A loss of the microbatches of one batch, that has to be a mean ("mean") or a sum ("sum") over all their rows."""

    def __init__(self, loss: Loss, kind: str):
        self.loss, self.kind = loss, kind
        self._silent = not reaches_communicator(loss)  # else other ranks would wait for its messages, or not
        self._single = f"{kind}, of microbatches of one row"
        self._tried = self._single in tried_as(loss)
        self._numbers: list[float] | None = None  # of the first microbatch whose graph is known
        self._row: tuple[Value, Value] | None = None  # the first microbatch's first
        self._all_single = True

    def require(self, k: int, y: Value, target: Value, rows: int, loss: torch.Tensor) -> None:
        """Raise ValueError if `loss`, which has a graph that ends at `y`, does not add up; `k` names the microbatch."""
        if not self._silent or torch._C._len_torch_dispatch_stack():  # a mode would see what is tried here
            return
        if self._row is None:
            self._row = tree_map(lambda x: _first(x, rows), (y, target))
        self._all_single = self._all_single and rows == 1
        terms = Terms([loss], (None,))
        differs, unknown = not self._same(terms, rows), terms.coefficients is None
        if differs or unknown or self._is_other(terms, rows):
            fits = self._try(y, target, rows, CLOSE)
        elif rows == 1 and not self._tried:  # which `require_reduction` cannot try
            fits = self._try(y, target, rows, ROUGH)
        else:
            return
        if fits is False or (fits is None and differs):
            raise ValueError(
                f"the loss of microbatch {k} is no {self.kind} over its rows that adds up over microbatches: it "
                "divides by another number, as weights of classes, ignore_index and masks do, or mixes rows, as roots, "
                "norms and comparisons do; take a loss with reduction='sum', and give `total`, the number by which "
                "the loss of the whole batch is divided"
            )

    def finish(self) -> None:
        """Note that the loss of all microbatches added up."""
        if self._all_single:
            tried_as(self.loss).add(self._single)

    def _same(self, terms: Terms, rows: int) -> bool:
        """Return whether the coefficients are those of the first microbatch; also if they are not known."""
        if terms.coefficients is None:
            return True
        numbers = [each * (rows if self.kind == "mean" else 1) for each in terms.coefficients]
        numbers = [x for i, x in enumerate(numbers) if not i or not _close(x, numbers[i - 1])]  # a loop over rows
        if self._numbers is None:
            self._numbers = numbers
        pairs = zip(numbers, self._numbers, strict=False)
        return len(numbers) == len(self._numbers) and all(_close(x, y) for x, y in pairs)

    def _is_other(self, terms: Terms, rows: int) -> bool:
        return terms.is_no_mean([rows]) if self.kind == "mean" else terms.mixes([rows])

    def _try(self, y: Value, target: Value, rows: int, close: float) -> bool | None:
        """Return whether the loss of all rows and a row of the first microbatch is theirs added up; None if unknown."""
        for prepare in (_double, _detached) if close < ROUGH else (_detached,):
            try:
                row, many = (tree_map(prepare, each) for each in (self._row, (y, target)))
                one, all_rows, both = self._losses(row, many, rows)
            except Exception:  # it takes no other dtype, or no other number of rows
                continue
            expected = (one + rows * all_rows) / (1 + rows) if self.kind == "mean" else one + all_rows
            near = max(close, 4 * torch.finfo(both.dtype).eps) * max(map(abs, map(float, (one, all_rows, both))))
            return None if bool(expected.isnan()) else bool(abs(both - expected) <= near)
        return None

    def _losses(self, row: Any, many: Any, rows: int) -> list[torch.Tensor]:
        """Return the losses of a row, of `many` rows and of both together."""
        one = tree_map(lambda first, x: first if _has_rows(x, rows) else x, row, many)
        both = tree_map(lambda first, x: torch.cat([first, x]) if _has_rows(x, rows) else x, row, many)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return [require_number(self.loss(*each)) for each in (one, many, both)]


def require_no_parameter(loss: torch.Tensor, outputs: Sequence[torch.Tensor]) -> None:
    """Raise ValueError if the loss depends on anything else than the last part's `outputs` that has a gradient."""
    known = set(map(id, outputs))
    for leaf in leaves_of(loss.grad_fn) if loss.grad_fn is not None else ():
        if id(leaf) not in known:
            raise ValueError(
                f"the loss depends on a parameter of shape {tuple(leaf.shape)}, whose gradient no pipeline computes; "
                "put the parameter into the last part, or call backward() on its own term after run_stage"
            )


def _has_rows(x: Any, rows: int) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() > 0 and len(x) == rows


def _first(x: Any, rows: int) -> Any:
    """Return the first row of a tensor of `rows` rows, without the others' memory; else `x`."""
    return x[:1].detach().clone() if _has_rows(x, rows) else x


def _double(x: Any) -> Any:
    return x.detach().double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) else x


def _close(x: float, y: float) -> bool:
    return math.isclose(x, y, rel_tol=CLOSE)
