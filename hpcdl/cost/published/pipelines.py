"""Pipelines: GPipe, Zero Bubble, PipeDream."""

from itertools import combinations, pairwise

from hpcdl.cost import pipeline
from hpcdl.cost.published.row import Row
from hpcdl.parallel import schedules

# Huang et al. 2019, table 2: speed on K = 2, 4, 8 accelerators by number of microbatches, relative to K = 2, M = 1.
GPIPE = {
    "Transformer": {1: (1, 1.07, 1.3), 4: (1.7, 3.2, 4.8), 32: (1.8, 3.4, 6.3)},
    "AmoebaNet": {1: (1, 1.13, 1.38), 4: (1.07, 1.26, 1.72), 32: (1.21, 1.84, 3.48)},
}


def gpipe() -> list[Row]:
    """Predict both columns of the table: equal layers, which the schedule explains, and unequal ones."""
    return [
        Row("GPipe", f"{model}, speed, K = {k}, M = {m}", speed, pipeline.speedup(k, m), "", _limit(model, k, m))
        for model, column in GPIPE.items()
        for m, speeds in column.items()
        for k, speed in zip((2, 4, 8), speeds, strict=True)
    ]


def _limit(model: str, k: int, m: int) -> float | None:
    if (k, m) == (2, 1):
        return 0  # the unit
    return 10 if model == "Transformer" and m == 32 else None


def gpipe_without_nvlink() -> list[Row]:
    """Huang et al. 2019, table 3: GPUs that are not linked by NVLink, M = 32, relative to K = 2."""
    alone = pipeline.speedup(2, 32)
    return [
        Row(
            "GPipe",
            f"Transformer, GPUs without NVLink, K = {k}, M = 32",
            speed,
            pipeline.speedup(k, 32) / alone,
            "",
            10,
        )
        for k, speed in ((4, 1.8), (8, 3.3))
    ]


# Qi et al. 2024. For each model: p, samples per microbatch, and chunks of the interleaved schedule, one layer each (the
# first and the last stage have one layer less). By number of microbatches: table 9 (ms of F, B, W and a message), table
# 5 (bubble of 1F1B, 1F1B-I, ZB-H1, ZB-H2 in percent), and table 4 (1F1B, samples per GPU and second).
ZERO_BUBBLE = {
    "1.5 B": (8, 6, 3, {
        24: ((18.522, 18.086, 9.337, 0.601), (24.31, 10.55, 15.85, 10.83), 11.8),
        32: ((18.513, 18.086, 9.331, 0.626), (19.85, 8.18, 12.42, 8.37), 12.5),
        64: ((18.546, 18.097, 9.321, 0.762), (12.40, 4.43, 6.74, 4.44), 13.6),
    }),
    "14.6 B": (16, 1, 3, {
        48: ((11.347, 11.248, 8.132, 0.377), (25.52, 11.04, 13.97, 6.72), 1.40),
        64: ((11.307, 11.254, 8.101, 0.379), (20.82, 8.52, 10.88, 5.16), 1.49),
        128: ((11.325, 11.308, 8.109, 0.378), (12.51, 4.45, 5.76, 2.66), 1.64),
    }),
}  # fmt: skip


def zero_bubble() -> list[Row]:
    """Return the bubbles of table 5, as the schedules of `hpcdl.cost.pipeline` leave them with the times of table 9."""
    rows = []
    for model, (p, _, chunks, runs) in ZERO_BUBBLE.items():
        for m, (times, printed, _) in runs.items():
            for name, figure in zip(("1F1B", "1F1B-I", "ZB-H1", "ZB-H2"), printed, strict=True):
                parts = chunks if name == "1F1B-I" else 1
                ours = 100 * _played(name, p, m, times, parts).bubble
                what, limit = f"{model} parameters, bubble of {name}, m = {m}", 0.4 if name == "1F1B-I" else 0
                rows.append(Row("Zero Bubble", what, figure, ours if limit else round(ours, 2), "%", limit))
    return rows


def zero_bubble_memory() -> list[Row]:
    """Return what Qi et al. 2024 promise for 8 stages and F = B = W: microbatches in flight, and no bubble for ZB-V."""
    p, m = 8, 32
    plain = {
        name: pipeline.play(orders(p, m), 1.0, 1.0, 1.0)
        for name, orders in (("1F1B", schedules.one_f_one_b), ("ZB-H1", schedules.zb_h1), ("ZB-H2", schedules.zb_h2))
    }
    v = pipeline.play(schedules.zb_v(p, m), 0.5, 0.5, 0.5, parts=schedules.v_shaped(p))
    held = {name: max(timeline.memory()) for name, timeline in plain.items()} | {"ZB-V": max(v.memory(0.5))}
    printed = {"1F1B": p, "ZB-H1": p, "ZB-H2": 2 * p - 1, "ZB-V": p}
    return [
        *(
            Row("Zero Bubble", f"microbatches in flight, {name}, p = 8", figure, held[name], "", 0)
            for name, figure in printed.items()
        ),
        Row("Zero Bubble", "bubble of ZB-V, p = 8, F = B = W", 0, 100 * v.bubble, "%", 0),
    ]


def zero_bubble_throughput() -> list[Row]:
    """1F1B's samples per GPU and second (table 4) from the times of table 9 alone."""
    return [
        Row(
            "Zero Bubble",
            f"{model} parameters, samples/s per GPU, 1F1B, m = {m}",
            figure,
            1e3 * m * samples / (_played("1F1B", p, m, times, 1).seconds * p),
            "",
            10,
        )
        for model, (p, samples, _, runs) in ZERO_BUBBLE.items()
        for m, (times, _, figure) in runs.items()
    ]


def _played(name, p, m, times, chunks):
    *seconds, message = times
    f, b, w = (each / chunks for each in seconds)
    orders = {
        "1F1B": schedules.one_f_one_b,
        "1F1B-I": lambda p, m: schedules.interleaved(p, m, chunks),
        "ZB-H1": schedules.zb_h1,
        "ZB-H2": schedules.zb_h2,
    }[name]
    return pipeline.play(orders(p, m), f, b, w, message=message)


# VGG-16 on one Titan X, 64 images: ms forward and backward of each layer (with what follows it, up to the next layer
# with weights). From the profile that PipeDream's authors publish (msr-fiddle/pipedream, graph.txt), without data
# loading.
VGG16_MS = (
    (26.753, 30.166), (54.451, 124.220), (17.514, 42.386), (26.786, 58.787), (12.191, 19.715), (19.098, 28.486),
    (16.963, 36.722), (10.275, 15.270), (16.207, 22.579), (13.458, 30.093), (6.392, 7.647), (4.533, 7.586),
    (5.050, 9.057), (2.852, 4.605), (0.986, 0.766), (0.393, 0.548),
)  # fmt: skip


def pipedream() -> list[Row]:
    """Harlap et al. 2018, table 1: VGG-16 on 4 and 8 machines, speed-up over one; with pipelines.

    A stage on r machines takes 1/r of its time; weights are stashed, so no batch waits for another.
    """
    total = sum(map(sum, VGG16_MS))
    rows = []
    for machines, replicas, speed in ((4, (2, 1, 1), 3.14), (8, (7, 1), 7.04)):
        name, limit = "-".join(map(str, replicas)), 10 if machines == 8 else None
        what = f"VGG-16, pipeline {name} on {machines}"
        rows.append(Row("PipeDream", what, speed, total / _slowest_stage(replicas), "", limit))
    return rows


def _slowest_stage(replicas) -> float:
    """Return the milliseconds of the slowest stage in the best partition."""
    layers = [sum(ms) for ms in VGG16_MS]
    return min(
        max(
            sum(layers[start:stop]) / r
            for (start, stop), r in zip(pairwise([0, *cuts, len(layers)]), replicas, strict=True)
        )
        for cuts in combinations(range(1, len(layers)), len(replicas) - 1)
    )
