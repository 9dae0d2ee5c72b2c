"""What becomes of an entry under a wrapper: "right", or the sentence that refuses it. Anything else is an error."""

import re
import traceback

import torch
from zoo import entries, entries_layers, entries_loops, entries_training, wrappers  # noqa: F401 - they register
from zoo.registry import ENTRIES, WRAPPERS, Entry, Kit, Weights

from hpcdl.comm import RankError, simulate

RIGHT = "right"
REFUSALS = (ValueError, TypeError, RuntimeError, NotImplementedError)
_references: dict[str, Weights] = {}


def outcome(name: str, column: str, p: int) -> str:
    """Train entry `name` under wrapper `column` on `p` simulated ranks."""
    with float64():
        expected = reference(name)
        try:
            results = simulate(lambda comm: attempt(comm, name, column), p).results
        except RankError as error:
            raise AssertionError(f"{name} under {column} on {p} ranks: {error}") from error
    return verdict(ENTRIES[name], column, results, expected)


def reference(name: str) -> Weights:
    """The entry's weights after training in one process."""
    if name not in _references:
        _references[name] = ENTRIES[name].loop(ENTRIES[name], Kit(entry=ENTRIES[name]))
    return _references[name]


def attempt(comm, name: str, column: str) -> Weights | str:
    """This rank's weights after training, or what refused it."""
    entry = ENTRIES[name]
    try:
        return entry.loop(entry, WRAPPERS[column](comm, entry))
    except REFUSALS as error:
        last = traceback.extract_tb(error.__traceback__)[-1].filename
        if "/hpcdl/" not in last:  # torch's own words, or a mistake in the loop
            raise
        return str(error)


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
    return re.sub(r"rank \d+", "rank r", sentence)


class float64:  # noqa: N801 - used as a function
    """Modules that make tensors make them in float64."""

    def __enter__(self) -> None:
        self._before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_) -> None:
        torch.set_default_dtype(self._before)
