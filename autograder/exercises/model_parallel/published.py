"""Zero Bubble's figures, and the three schedules that they are of, written a second time.

Source: Qi et al. 2024, "Zero bubble pipeline parallelism": table 9 (ms of F, B, W and a message) and table 5 (bubble).
"""

# p, m, (F, B, W, message), bubble of 1F1B, ZB-H1, ZB-H2
TABLE_5 = (
    (8, 24, (18.522, 18.086, 9.337, 0.601), (0.2431, 0.1585, 0.1083)),
    (8, 32, (18.513, 18.086, 9.331, 0.626), (0.1985, 0.1242, 0.0837)),
    (8, 64, (18.546, 18.097, 9.321, 0.762), (0.1240, 0.0674, 0.0444)),
    (16, 48, (11.347, 11.248, 8.132, 0.377), (0.2552, 0.1397, 0.0672)),
    (16, 64, (11.307, 11.254, 8.101, 0.379), (0.2082, 0.1088, 0.0516)),
    (16, 128, (11.325, 11.308, 8.109, 0.378), (0.1251, 0.0576, 0.0266)),
)


def one_f_one_b(p: int, m: int) -> list:
    return [_plain(min(p - i, m), m) for i in range(p)]


def _plain(warmup: int, m: int) -> list:
    order = [("F", k, 0) for k in range(warmup)]
    for k in range(m):
        order.append(("B", k, 0))
        if warmup + k < m:
            order.append(("F", warmup + k, 0))
    return order


def zb_h1(p: int, m: int) -> list:
    return [_apart(min(p - i, m), m, delay=i) for i in range(p)]


def zb_h2(p: int, m: int) -> list:
    return [_apart(min(2 * (p - i) - 1, m), m, delay=2 * i) for i in range(p)]


def _apart(warmup: int, m: int, delay: int) -> list:
    """B and W apart: W stays `delay` microbatches behind B, and what is left of them comes last."""
    order, done = [("F", k, 0) for k in range(warmup)], 0
    for k in range(m):
        order.append(("B", k, 0))
        if k + 1 - done > delay:
            order.append(("W", done, 0))
            done += 1
        if warmup + k < m:
            order.append(("F", warmup + k, 0))
    return order + [("W", k, 0) for k in range(done, m)]
