# model_parallel.schedules: 3 points, flagged, long
# Torch makes two of the three schedules, for a pipeline that need not run.
from torch.distributed.pipelining import schedules


def ready(p, m, v, zero, factor):
    orders = []
    for r in range(p):
        warm = schedules._get_warmup_ops(r, v, p, p, m, factor)
        rest = m * v - warm
        ops = schedules._get_1f1b_rank_ops(
            v,
            p,
            warm,
            rest,
            warm,
            r,
            lambda op, r=r, warm=warm: (op // p) % v * p + r,
            lambda op, r=r, warm=warm: (v - 1 - (op - warm) // p % v) * p + r,
            num_1f1b_microbatches=r if zero else 0,
            enable_zero_bubble=zero,
        )
        orders.append(
            [(NAMES[a.computation_type.name], a.microbatch_index, a.stage_index // p) for a in ops if a is not None]
        )
    return orders


def gpipe(p, m):
    return [[("F", k, 0) for k in range(m)] + [("B", k, 0) for k in range(m)] for _ in range(p)]


def one_f_one_b(p, m):
    return ready(p, m, 1, False, 1)


def interleaved(p, m, v):
    return ready(p, m, v, False, 2)


NAMES = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}
