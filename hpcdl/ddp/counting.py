"""Count a rank's samples from the inputs of its forward passes."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from weakref import WeakKeyDictionary

import torch
from torch import nn

from hpcdl.comm import Communicator
from hpcdl.ddp.alike import agree, digest, votes
from hpcdl.ddp.backward_passes import Losses
from hpcdl.ddp.walk import ELSEWHERE


def require_countable(module: nn.Module, samples: Callable | None) -> None:
    """Raise ValueError if an input's first length may be a sequence's and no `samples` says how to count."""
    if samples is not None:
        return
    for name, layer in module.named_modules():
        if getattr(layer, "batch_first", True) is False:
            raise ValueError(
                f"{name or 'the module'} ({type(layer).__name__}) has batch_first=False, so that the length of an "
                "input may be that of its sequences and not the number of samples; say how to count them: "
                "samples=lambda x: x.shape[1], or samples=len where the model's own input has samples first"
            )


def count_samples(samples: Callable | None, args: tuple, kwargs: dict) -> int:
    """Return this rank's number of samples from the inputs of a forward pass."""
    if samples is None:
        return _length(args, kwargs)
    n = samples(*args, **kwargs)
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"samples(...) returned {n!r}; it returns this rank's number of samples, an int, 0 or more")
    return n


def _length(args: tuple, kwargs: dict) -> int:
    for x in chain(args, kwargs.values()):
        if isinstance(x, torch.Tensor) and torch._C._functorch.is_batchedtensor(x):
            raise TypeError(
                "ddp(...) was called inside vmap of torch.func, which hides how many samples there are; call vmap "
                "inside the module's forward"
            )
    for length in _lengths(args, kwargs):
        return length
    given = ", ".join(type(x).__name__ for x in chain(args, kwargs.values())) or "nothing"
    raise TypeError(
        f"ddp(...) was given {given}: no tensor whose length is the number of samples; say how to count them, such as "
        "DistributedDataParallel(model, comm, samples=lambda batch: len(batch['x']))"
    )


def _lengths(args: tuple, kwargs: dict) -> Iterator[int]:
    return (len(x) for x in chain(args, kwargs.values()) if isinstance(x, torch.Tensor) and x.dim())


def guessed_lengths(samples: Callable | None, args: tuple, kwargs: dict) -> list[int]:
    """Return the lengths of all tensor inputs; none if `samples` counts them."""
    return [] if samples else list(_lengths(args, kwargs))


COUNTS = 3  # how many votes `count_votes` has
# Added to a rank's vote: its loss is known; its inputs have several lengths; the known loss is no mean.
KNOWN, UNEVEN, NO_MEAN = 2.0**-13, 2.0**-26, 2.0**-39
CLOSE = 1e-5  # relative; losses in float32 have 1e-7


def count_votes(lengths: Sequence[int], samples: float, losses: Losses) -> list[float]:
    """Return a rank's part of the sum that `require_one_mean` reads; `lengths` are those of a whole step."""
    if not samples:
        return votes(0, False)
    uneven = len(set(lengths)) > 1
    value = losses.weight(samples)
    known = value is not None
    if value is None:
        value = digest([str(Fraction(n, lengths[0])) for n in lengths] if lengths[0] else lengths) if uneven else 0
    return [1 + KNOWN * known + UNEVEN * uneven + NO_MEAN * (known and losses.no_mean), value, value**2]


_said: WeakKeyDictionary[Communicator, set[str]] = WeakKeyDictionary()  # why losses could not be read


def require_one_mean(sums: Sequence[float], comm: Communicator, losses: Losses | None) -> None:
    """Raise ValueError on every rank if n_r / N is not the right weight for every rank's loss.

    `losses` are this rank's, None if no rank has a gradient. If no rank's are known, lengths must not differ on a rank
    in other proportions than on other ranks: with equal proportions n_r / N is the same whichever length counts
    samples, and for each of several forward passes. Then rank 0 warns; if some are known, each rank whose own are not.
    """
    count, value, squares = sums
    ranks = int(count)
    known, rest = divmod((count - ranks) / KNOWN, 1)
    uneven, no_means = divmod(rest * KNOWN / UNEVEN, 1)
    if not known:
        right = agree([ranks, value, squares])
    elif known == ranks:
        apart = ranks * squares - value**2 > CLOSE**2 * ranks * squares  # NaN is found elsewhere
        right = not apart and (not no_means or ranks == 1)
    else:
        right = not uneven
    if not right and uneven:
        raise ValueError(
            "the tensors of this step have several lengths, in other proportions on other ranks, so no single n_r / N "
            "is right for all of them; give every rank equal shares of each, call the model under torch.no_grad() if "
            "no backward follows, or say how to count, such as samples=len, and divide each of several losses by its "
            "own part of the samples"
        )
    if not right:
        raise ValueError(
            "the ranks' losses are not means over their samples: they divide by other numbers, as weights of classes, "
            "ignore_index and masks do, or mix samples, as roots, norms and comparisons do, and no n_r / N is right "
            "for them; divide sums by the number of samples, or count what the loss divides by: samples=lambda x, y: "
            "int((y >= 0).sum()), or count() of a ShardedOptimizer"
        )
    if losses and known < ranks > 1 and not comm.silent and (losses.had_gradient if known else not comm.rank):
        _warn(losses.unread, _said.setdefault(comm, set()))


def _warn(why: str, said: set[str]) -> None:
    """Warn that a loss is not known, unless `why` has been said, or there is nothing to say."""
    if why not in {"", ELSEWHERE, *said}:
        said.add(why)
        warnings.warn(
            f"the loss cannot be checked ({why}), so it is taken for a mean over the samples that are counted; if it "
            "is one, nothing is wrong; if it divides by another number, as weights of classes, ignore_index and masks "
            "do, count that number: samples=lambda x, y: int((y >= 0).sum()), or count() of a ShardedOptimizer; if it "
            "mixes samples, as roots and norms do, compute that part with torch's functions, which are checked",
            stacklevel=4,
        )
