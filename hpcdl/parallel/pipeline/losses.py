"""How a pipeline adds up a loss over microbatches: as a mean over rows, or as a sum."""

import contextlib
import functools
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch.utils.weak import WeakIdKeyDictionary

from hpcdl.comm import Communicator, Group
from hpcdl.parallel.pipeline.values import Value, like, rows_of, tensors_of

Loss = Callable[[Any, Any], torch.Tensor]
Reduction = Literal["mean", "sum"]

FIRST = 100  # items of a collection in which a communicator is looked for

_tried: WeakIdKeyDictionary = WeakIdKeyDictionary()  # a loss -> what it is; functions of one code may differ


def reduction_of(loss: Loss, given: Reduction | None, microbatches: Sequence[tuple[Any, Any]]) -> str:
    """Return the loss's reduction: `given`, or the loss's own attribute, or "mean".

    Raises ValueError if these differ, and for a mean that ignores targets, since the number that count is unknown.
    """
    own = loss.keywords if isinstance(loss, functools.partial) else vars(loss) if hasattr(loss, "__dict__") else {}
    says = own.get("reduction")
    kind = given or says or "mean"
    if kind not in ("mean", "sum"):
        raise ValueError(f"reduction is {kind!r}; a pipeline adds up losses that are a 'mean' or a 'sum' over rows")
    if given and says and given != says:
        raise ValueError(f"reduction is {given!r} and the loss's own is {says!r}; give one of them to both")
    if kind == "mean" and (ignored := _ignore_index(loss, own)) is not None and _has(microbatches, ignored):
        raise ValueError(
            f"a target is ignore_index={ignored}, so that the mean of a microbatch is not over its rows; take a loss "
            "with reduction='sum', and give `total`, the number of targets that count"
        )
    return kind


def require_reduction(loss: Loss, kind: str, y: Value, target: Value) -> None:
    """Raise ValueError if the loss of two rows is not the mean (or sum) of each row's; tried once for each loss.

    A loss that reaches a communicator is not tried: other ranks would wait for its messages, or not.
    """
    known = tried_as(loss)
    if rows_of(y) < 2 or kind in known:
        return
    if reaches_communicator(loss):
        known.add(kind)
        return
    try:
        both, *each = _losses_of_rows(loss, y, target)
    except Exception:  # a loss of whole microbatches cannot be tried
        return
    found = {"mean": sum(each) / 2, "sum": sum(each)}
    if not _close(both, found[kind]):
        other = "sum" if kind == "mean" else "mean"
        how = f"give reduction={other!r}" if _close(both, found[other]) else "take one that is"
        raise ValueError(
            f"the loss of two rows is {both:.6g}, and those of each row are {each[0]:.6g} and {each[1]:.6g}: it is no "
            f"{kind} over rows, which a pipeline adds up over microbatches; {how}"
        )
    known.add(kind)


def tried_as(loss: Loss) -> set[str]:
    """Return what the loss was found to be."""
    return _tried.setdefault(loss, set())


def reaches_communicator(value: Any, depth: int = 4) -> bool:
    """Return whether a function, a module or an object leads to a communicator that it closes over, holds or names."""
    if isinstance(value, (Communicator, Group)):
        return True
    return depth > 0 and any(reaches_communicator(each, depth - 1) for each in _held(value))


def _held(value: Any) -> Iterator[Any]:
    """Yield what an object holds: the first `FIRST` items of a collection, nothing for modules and plain values."""
    if isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, types.FunctionType):
        with contextlib.suppress(ValueError):  # a name of the function around it that has no value yet
            yield from (cell.cell_contents for cell in value.__closure__ or ())
        yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        yield from (value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__)
    elif isinstance(value, (list, tuple, set)):
        yield from itertools.islice(value, FIRST)
    elif isinstance(value, dict):
        yield from itertools.islice(value.values(), FIRST)
    elif not isinstance(value, (type, types.ModuleType, torch.Tensor)) and hasattr(value, "__dict__"):
        yield from vars(value).values()


def _losses_of_rows(loss: Loss, y: Value, target: Value) -> list[float]:
    """Return the losses of the first two rows together, and of each."""
    parts = (slice(0, 2), slice(0, 1), slice(1, 2))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return [float(require_number(loss(_rows(y, part), _rows(target, part)))) for part in parts]


def require_number(loss: Any) -> torch.Tensor:
    """Return the loss; ValueError unless it is a tensor of one real number."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.is_complex():
        given = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise ValueError(f"the loss has returned {given}; it returns one number, the mean over the rows")
    return loss.reshape(())


def _ignore_index(loss: Loss, own: Any) -> int | None:
    """Return the target that a loss leaves out, None if it leaves out none."""
    inner = loss.func if isinstance(loss, functools.partial) else loss
    functions = (torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss)
    return own.get("ignore_index", -100 if inner in functions else None)


def _has(microbatches: Sequence[tuple[Any, Any]], ignored: int) -> bool:
    targets = [y for _, y in microbatches if isinstance(y, torch.Tensor) and not y.is_floating_point()]
    return any(bool((y == ignored).any()) for y in targets)


def _rows(value: Value, where: slice) -> Value:
    return like(value, [x[where] for x in tensors_of(value, "a batch")])


def _close(x: float, y: float) -> bool:
    return x != x or abs(x - y) <= 1e-2 * max(abs(x), abs(y)) + 1e-6
