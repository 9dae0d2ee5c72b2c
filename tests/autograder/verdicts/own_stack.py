"""Answers to exercises of lab `own_stack` whose verdict was wrong once: see `test_verdicts`."""


# %% ring: left ring -> neighbours_only
def ring_all_reduce(x, comm):
    p, r = comm.size, comm.rank
    right, left = (r - 1) % p, (r + 1) % p
    chunks = x.view(-1).tensor_split(p)
    for s in range(p - 1):
        given, taken = chunks[(r + s) % p], chunks[(r + s + 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, right, incoming, left)
        taken += incoming
    for s in range(p - 1, 2 * p - 2):
        given, taken = chunks[(r + s) % p], chunks[(r + s + 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, right, incoming, left)
        taken.copy_(incoming)
