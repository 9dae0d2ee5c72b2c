"""No formula turns a number that cannot be into seconds or bytes: it names the argument."""

import math

import pytest

from hpcdl.cost import collectives, loading, memory, pipeline, run, scaling, sequence_parallel, training

PARTS = ("broadcast", "reduce", "all_gather", "reduce_scatter", "scatter", "gather", "all_to_all")
COLLECTIVES = [*collectives.ALL_REDUCE.values(), *(getattr(collectives, name) for name in PARTS)]
GOOD = {
    pipeline.speedup: {"stages": 4, "microbatches": 8},
    pipeline.bubble: {"stages": 4, "microbatches": 8},
    pipeline.seconds: {"forward": [1.0, 1.0], "backward": [2.0, 2.0], "microbatches": 4, "message": 0.5},
    loading.loading_rate: {"read": 1.0, "decode": 1.0, "train": 1.0, "workers": 2, "cores": 4},
    loading.play_loading: {"read": [1.0], "decode": [1.0], "train": [1.0], "workers": 2, "queue": 1},
    memory.zero: {"parameters": 1e9, "ranks": 8, "stage": 1, "optimizer": 12, "weight": 2, "gradient": 2},
    memory.activations: {"sequence": 128, "microbatch": 2, "hidden": 64, "heads": 4, "tensor": 2},
    memory.interleaving: {"p": 4, "v": 2},
    memory.first_stage: {"layers": 8, "layer_bytes": 100.0, "p": 4, "v": 2},
    run.checkpoint_interval: {"write": 1.0, "between_failures": 1000.0},
    run.run: {"iteration": 1.0, "batch": 8, "samples": 1e3, "epochs": 1.0, "evaluation": 1.0, "write": 1.0},
    training.efficiency: {"seconds": 1.0, "alone": 1.0},
    training.time_to_train: {"iteration": 1.0, "batch": 8, "samples": 1e3, "epochs": 1.0, "evaluation": 1.0},
    training.train_seconds: {"parameters": 1e9, "tokens": 1e9, "ranks": 8, "rate": 1e12},
    scaling.slowest: {"p": 4, "spread": 0.1},
    sequence_parallel.least_block: {"peak": 1e12, "bandwidth": 1e9},
    **{formula: {"p": 4, "nbytes": 1000, "alpha": 1e-6, "beta": 1e-9, "gamma": 1e-10} for formula in COLLECTIVES},
    collectives.unequal_all_to_all: {"alpha": 1e-6, "beta": 1e-9},
}
CASES = [(f, name, odd) for f, given in GOOD.items() for name in given for odd in (math.nan, -1.0, math.inf, 0.0)]


def numbers(x):
    """All numbers in x, tuples and lists included."""
    return [y for each in x for y in numbers(each)] if isinstance(x, (tuple, list)) else [x]


@pytest.mark.parametrize(("formula", "name", "odd"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_an_odd_number_is_refused_by_name_or_has_a_result(formula, name, odd):
    more = {"counts": [[1, 2], [3, 4]]} if formula is collectives.unequal_all_to_all else {}
    given = GOOD[formula]
    odd = [odd] * len(given[name]) if isinstance(given[name], list) else odd
    try:
        found, said = formula(**{**given, name: odd}, **more), ""
    except ValueError as error:
        found, said = [], str(error)
    if said:
        assert name in said
    else:
        assert all(x >= 0 for x in numbers(found)), f"{name} is {odd}: {found}"
        assert odd not in (-1.0, [-1.0], [-1.0, -1.0]), "nothing comes in a negative number"
