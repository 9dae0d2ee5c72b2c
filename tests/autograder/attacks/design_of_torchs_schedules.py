# model_parallel.design: 0 points, flagged, long
# Torch's schedules, with as many microbatches under way as the cap allows.
from torch.distributed.pipelining import schedules


def ready(p, m, extra):
    orders = []
    for r in range(p):
        warm = min(schedules._get_warmup_ops(r, 1, p, p, m, extra), m)
        ops = schedules._get_1f1b_rank_ops(
            1,
            p,
            warm,
            m - warm,
            warm,
            r,
            lambda op, r=r, warm=warm: r,
            lambda op, r=r, warm=warm: r,
            num_1f1b_microbatches=r * extra,
            enable_zero_bubble=True,
        )
        orders.append([(NAMES[a.computation_type.name], a.microbatch_index, 0) for a in ops if a is not None])
    return orders


NAMES = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}


def held(order):
    now = most = 0
    for op, *_ in order:
        now += (op == "F") - (op == "W")
        most = max(most, now)
    return most


def design(p, m, f, b, w, cap):
    for extra in (2, 1):
        orders = ready(p, m, extra)
        if max(map(held, orders)) <= cap:
            return orders
    return (
        [[(op, k, 0) for k in range(m) for op in "FBW"] for _ in range(p)]
        if cap == 1
        else [
            [("F", 0, 0)]
            + [o for k in range(m) for o in ([("F", k + 1, 0)] if k + 1 < m else []) + [("B", k, 0), ("W", k, 0)]]
            for _ in range(p)
        ]
    )
