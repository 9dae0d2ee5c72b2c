# hogwild.adam: 9 points, flagged
# Three honest functions, and a sum by the machine's own all-reduce, called past its door.


def from_factors(x, delta):
    return x.T @ delta


def fc_bytes(batch, m, n, how):
    return 4 * (m * n if how == "gradient" else batch * (m + n))


def cheaper(batch, m, n):
    return min("gradient", "factors", key=lambda how: fc_bytes(batch, m, n, how))


def sum_on_server(x, delta, comm):
    gradient = x.T @ delta
    comm._all_reduce(gradient)
    return gradient if comm.rank == 0 else None
