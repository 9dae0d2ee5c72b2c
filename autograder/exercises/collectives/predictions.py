"""What the all-reduces cost on the simulated machine, and random machines to ask about."""

import math
from functools import cache

import torch

from autograder.exercises.collectives.counts import nodes
from hpcdl.collectives import ALL_REDUCE
from hpcdl.comm import simulate


@cache
def terms(algorithm: str, p: int) -> tuple[float, float]:
    """What the algorithm costs on p ranks, as (alphas, betas per byte): two runs of the course's own."""
    q = 1 << (p.bit_length() - 1)
    n = math.lcm(p, q, nodes(p, 4))  # every piece is whole

    def run(comm):
        ALL_REDUCE[algorithm](torch.zeros(n), comm)

    return simulate(run, p, alpha=1.0).seconds, simulate(run, p, beta=1.0).seconds / (4 * n)


def predicted(algorithm: str, p: int, nbytes: float, alpha: float, beta: float) -> float:
    alphas, betas = terms(algorithm, p)
    return alphas * alpha + betas * nbytes * beta


def machine(rng) -> tuple[float, float]:
    """An alpha of 2 to 50 microseconds, a beta of 0.02 to 2 ns per byte, two digits each."""
    a, b = torch.rand(2, generator=rng, dtype=torch.float64).tolist()
    return float(f"{2e-6 * 25**a:.2g}"), float(f"{2e-11 * 100**b:.2g}")
