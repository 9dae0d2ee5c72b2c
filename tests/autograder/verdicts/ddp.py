"""Answers to exercises of lab `ddp` whose verdict was wrong once: see `test_verdicts`."""


# %% ring_all_reduce: never waits for sends -> all_at_once
def ring_all_reduce(x, comm):
    p, r = comm.size, comm.rank
    parts = list(x.view(-1).tensor_split(p))
    for phase in range(2):
        for s in range(p - 1):
            out, into = parts[(r - s + phase) % p], parts[(r - s - 1 + phase) % p]
            buf = torch.empty_like(into)
            comm.isend(out, (r + 1) % p)
            comm.recv(buf, (r - 1) % p)
            if phase == 0:
                into.add_(buf)
            else:
                into.copy_(buf)


# %% ring_all_reduce: isend irecv -> full points
def ring_all_reduce(x, comm):
    p, r = comm.size, comm.rank
    parts = list(x.view(-1).tensor_split(p))
    for phase in range(2):
        for s in range(p - 1):
            out, into = parts[(r - s + phase) % p], parts[(r - s - 1 + phase) % p]
            buf = torch.empty_like(into)
            a, b = comm.isend(out, (r + 1) % p), comm.irecv(buf, (r - 1) % p)
            a.wait()
            b.wait()
            if phase == 0:
                into.add_(buf)
            else:
                into.copy_(buf)
