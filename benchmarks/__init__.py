"""What the course's code is measured by: each figure a ratio to the strongest peer in the same interleaved run.

    python -m benchmarks                          # every benchmark; minutes each
    python -m benchmarks NAME [--quick] [...]     # one; --quick only shows that it works, --help names its options

harness/ holds what all use: the machine's description, turns, pairs of ranks, results, the page docs/benchmarks.md.
peers/ holds what is measured beside ours. A new benchmark is a module with `main(quick, out, ...)`, which writes its
findings with `harness.results.save`, and a line below.
"""

import importlib
from types import ModuleType

BENCHMARKS = {  # name -> module, imported when it is asked for
    "all_to_all": "benchmarks.all_to_all",
    "card": "benchmarks.card",
    "collectives": "benchmarks.collectives",
    "consistency": "benchmarks.consistency",
    "convolution": "benchmarks.convolution",
    "convolution_gpu": "benchmarks.convolution_gpu",
    "ddp": "benchmarks.ddp",
    "frameworks": "benchmarks.frameworks",
    "grading": "benchmarks.grading",
    "guard": "benchmarks.guard",
    "labs": "benchmarks.labs",
    "low_precision": "benchmarks.low_precision",
    "memory": "benchmarks.memory",
    "parallel": "benchmarks.parallel",
    "pictures": "benchmarks.pictures",
    "rounding": "benchmarks.rounding",
    "scaling": "benchmarks.scaling",
    "schedules": "benchmarks.schedules",
    "sharding": "benchmarks.sharding",
    "trainer": "benchmarks.trainer",
}


def load(name: str) -> ModuleType:
    """Return the benchmark's module. Raises KeyError for an unknown name."""
    return importlib.import_module(BENCHMARKS[name])
