"""What becomes of an entry under a wrapper: "right", or the sentence that refuses it. Anything else is an error."""

import re
import traceback

import torch
from zoo import (  # noqa: F401 - they register
    entries,
    entries_brought,
    entries_brought_loops,
    entries_changes,
    entries_collected_batches,
    entries_collected_functions,
    entries_collected_loops,
    entries_collected_models,
    entries_guests,
    entries_hooks,
    entries_layers,
    entries_loops,
    entries_losses,
    entries_more_loops,
    entries_newcomers,
    entries_newcomers_functions,
    entries_newcomers_loops,
    entries_newcomers_models,
    entries_penalties,
    entries_results,
    entries_silent,
    entries_strangers,
    entries_strangers_loops,
    entries_tensor,
    entries_training,
    entries_users,
    entries_visitors,
    entries_visitors_loops,
    pipelines,
    tensor,
    wrappers,
)
from zoo.registry import ENTRIES, WRAPPERS, Entry, Weights

from hpcdl.comm import RankError, simulate

RIGHT = "right"
REFUSALS = (ValueError, TypeError, RuntimeError, NotImplementedError)
_references: dict[tuple, Weights] = {}


def outcome(name: str, column: str, p: int) -> str:
    """Train entry `name` under wrapper `column` on `p` simulated ranks."""
    with float64():
        expected = reference(name, column)
        try:
            results = simulate(lambda comm: attempt(comm, name, column), p).results
        except RankError as error:
            alone = WRAPPERS[column].alone or any(said in str(error) for said in WRAPPERS[column].first)
            if alone and isinstance(error.__cause__, REFUSALS) and is_ours(error.__cause__):
                return re.sub(r"^\d+(?=[. ])", "n", without_ranks(str(error.__cause__)))  # n: a layer of a stage
            raise AssertionError(f"{name} under {column} on {p} ranks: {error}") from error
    return verdict(ENTRIES[name], column, results, expected)


def reference(name: str, column: str) -> Weights:
    """The entry's weights after training in one process."""
    make = WRAPPERS[column].reference
    key = name, make.__func__
    if key not in _references:
        _references[key] = make(ENTRIES[name])
    return _references[key]


def attempt(comm, name: str, column: str) -> Weights | str:
    """This rank's weights after training, or what refused it."""
    kit = WRAPPERS[column](comm, ENTRIES[name])
    try:
        return kit.train()
    except REFUSALS as error:
        if kit.alone or not is_ours(error):
            raise
        return str(error)


def is_ours(error: BaseException) -> bool:
    """Whether hpcdl has raised it: else it is torch's own words, or a mistake in the loop."""
    return "/hpcdl/" in traceback.extract_tb(error.__traceback__)[-1].filename


def verdict(entry: Entry, column: str, results: list[Weights | str], expected: Weights) -> str:
    """What all ranks agree on; AssertionError if they differ from each other or from the reference."""
    where = f"{entry.name} under {column} on {len(results)} ranks"
    if isinstance(results[0], str):
        sentences = {without_ranks(result) if isinstance(result, str) else "trained" for result in results}
        assert len(sentences) == 1, f"{where}: ranks disagree: {sentences}"
        return sentences.pop()
    for rank, weights in enumerate(results):
        assert not isinstance(weights, str), f"{where}: rank {rank} alone was refused: {weights}"
        assert list(weights) == list(expected), f"{where}: names {list(weights)}, expected {list(expected)}"
        for key, value in expected.items():
            same = torch.allclose(weights[key], value, rtol=entry.tolerance, atol=entry.tolerance, equal_nan=True)
            assert same, f"{where}: rank {rank} has another {key}: {weights[key]}, expected {value}"
    return RIGHT


def without_ranks(sentence: str) -> str:
    """`sentence` without the numbers of ranks, and the digests of their weights."""
    return re.sub(r"\b[0-9a-f]{8}\b", "digest", re.sub(r"rank \d+", "rank r", sentence))


class float64:  # noqa: N801 - used as a function
    """Modules that make tensors make them in float64."""

    def __enter__(self) -> None:
        self._before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_) -> None:
        torch.set_default_dtype(self._before)
