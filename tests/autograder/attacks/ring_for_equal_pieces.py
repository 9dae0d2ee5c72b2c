# ddp.ring_all_reduce: 15 points, long
# A ring where p divides n; elsewhere rank 0 adds up everything.
import torch


def star(x, comm):
    if comm.rank:
        comm.send(x, 0)
        return comm.recv(x, 0)
    incoming = torch.empty_like(x)
    for source in range(1, comm.size):
        comm.recv(incoming, source)
        x += incoming
    for dest in range(1, comm.size):
        comm.send(x, dest)


def ring_all_reduce(x, comm):
    p, rank, flat = comm.size, comm.rank, x.view(-1)
    if p == 1 or flat.numel() % p:
        return star(flat, comm)
    pieces = list(flat.view(p, -1))
    incoming = torch.empty_like(pieces[0])
    for step in range(2 * p - 2):
        comm.sendrecv(pieces[(rank - step) % p], (rank + 1) % p, incoming, (rank - 1) % p)
        target = pieces[(rank - step - 1) % p]
        if step < p - 1:
            target += incoming
        else:
            target.copy_(incoming)
