"""The memory of training on each rank: weights, gradients, optimizer states, activations.

Sources: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models"; Korthikanti et
al. 2022, "Reducing activation recomputation in large transformer models", table 2.
"""

from hpcdl.cost.work import check_numbers, check_recompute

# What each stage of ZeRO divides among the ranks, in addition to the earlier stages.
STAGES = ("nothing", "optimizer states", "gradients", "parameters")


def zero(
    parameters: float, ranks: int, stage: int, *, optimizer: float = 12, weight: float = 2, gradient: float = 2
) -> float:
    """Return the bytes per rank for parameters, gradients and optimizer states at ZeRO `stage` 0 to 3, without
    activations.

    Bytes per parameter: mixed-precision Adam has 12 in the `optimizer` (a float32 copy, momentum and variance), and 2
    each for the 16-bit `weight` and `gradient`. Raises ValueError for any other stage, no rank, and numbers below 0.
    """
    check_numbers(parameters=parameters, optimizer=optimizer, weight=weight, gradient=gradient)
    check_numbers(1, ranks=ranks)
    if stage not in range(len(STAGES)):
        raise ValueError(f"stage is {stage!r}; ZeRO's stages are 0 (nothing divided) to 3 (parameters, too)")
    divided = (optimizer, gradient, weight)[: int(stage)]
    whole = (optimizer, gradient, weight)[int(stage) :]
    return parameters * (sum(whole) + sum(divided) / ranks)


def activations(
    sequence: int,
    microbatch: int,
    hidden: int,
    heads: int,
    *,
    tensor: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "nothing",
) -> float:
    """Return the 16-bit bytes that one transformer layer keeps per microbatch on each rank (Korthikanti's table 2).

    | ranks | recompute nothing | selective | full |
    |---|---|---|---|
    | one rank | sbh (34 + 5as/h) | 34 sbh | 2 sbh |
    | t ranks, tensor parallel | sbh (10 + 24/t + 5as/(ht)) | sbh (10 + 24/t) | 2 sbh |
    | and sequence parallel | sbh/t (34 + 5as/h) | 34 sbh/t | 2 sbh/t |

    10 sbh are in normalizations and dropouts, which tensor parallelism repeats on every rank; 5abs^2 are the scores of
    attention. (The paper prints 2 sbh in its last row, for a whole layer input; split along the sequence it is 1/t of
    that.) Raises ValueError for an unknown `recompute`, and for sizes below 1.
    """
    check_recompute(recompute)
    check_numbers(1, sequence=sequence, microbatch=microbatch, hidden=hidden, heads=heads, tensor=tensor)
    tokens = sequence * microbatch * hidden
    repeated = 1 / tensor if sequence_parallel else 1.0
    if recompute == "full":
        return 2 * tokens * repeated
    scores = 5 * heads * sequence / hidden if recompute == "nothing" else 0.0
    return tokens * (10 * repeated + (24 + scores) / tensor)


def interleaving(p: int, v: int = 1) -> float:
    """1 + (p - 1)/(p v): the factor by which an interleaved pipeline's first stage keeps more than 1F1B's L layers; v >
    1. Raises ValueError for p or v below 1."""
    check_numbers(1, p=p, v=v)
    return 1 + (p - 1) / (p * v) if v > 1 else 1.0


def first_stage(layers: int, layer_bytes: float, p: int = 1, v: int = 1) -> float:
    """Return the bytes of activations on the first of p stages, which has p microbatches of layers / p layers in
    flight.

    `layer_bytes` is `activations`; v chunks per stage when interleaved. The embedding does not count. Raises ValueError
    for p or v below 1, and for numbers below 0.
    """
    check_numbers(layers=layers, layer_bytes=layer_bytes)
    return layers * layer_bytes * interleaving(p, v)
