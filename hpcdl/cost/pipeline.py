"""Pipeline parallelism: the layers on K stages, a batch in M microbatches, and the bubble between them.

Source: Huang et al. 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism".
"""

from collections.abc import Sequence


def speedup(stages: int, microbatches: int) -> float:
    """K M / (M + K - 1): how much faster K equal stages are than one, for M microbatches."""
    return stages * microbatches / (microbatches + stages - 1)


def bubble(stages: int, microbatches: int) -> float:
    """(K - 1) / (M + K - 1): the share of time in which a stage has nothing to do."""
    return (stages - 1) / (microbatches + stages - 1)


def seconds(forward: Sequence[float], backward: Sequence[float], microbatches: int, message: float = 0.0) -> float:
    """One batch through the stages, forward and then backward; seconds of one microbatch on each stage.

    Each way sum(t) + (M - 1) max(t): the slowest stage sets the pace. `message` seconds pass between neighbours.
    """
    return sum(
        sum(stages) + (microbatches - 1) * max(stages) + (len(stages) - 1) * message for stages in (forward, backward)
    )
