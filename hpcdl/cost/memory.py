"""What training keeps on each rank, and what ZeRO spreads over them.

Source: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models".
"""

# What each stage of ZeRO divides among the ranks, beside all that the stages before it divide.
STAGES = ("nothing", "optimizer states", "gradients", "parameters")


def zero(parameters: float, ranks: int, stage: int, *, optimizer: float = 12, weight: float = 2, gradient: float = 2):
    """Bytes per rank for parameters, gradients and optimizer states at ZeRO `stage` 0 to 3; activations come on top.

    Bytes per parameter: mixed-precision Adam has 12 in the `optimizer` (a float32 copy, momentum and variance), and 2
    each for the 16-bit `weight` and `gradient`. Raises ValueError for another stage.
    """
    if stage not in range(len(STAGES)):
        raise ValueError(f"stage is {stage!r}; ZeRO's stages are 0 (nothing divided) to 3 (parameters, too)")
    divided = (optimizer, gradient, weight)[:stage]
    whole = (optimizer, gradient, weight)[stage:]
    return parameters * (sum(whole) + sum(divided) / ranks)
