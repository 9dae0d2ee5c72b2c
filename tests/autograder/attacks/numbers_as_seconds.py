# ddp.ring_all_reduce: 0 points, long
# The numbers are seconds: a rank works as long as its number is large, and all see on their clocks how long it was.
import torch


def meet(comm):
    for _ in range(comm.size - 1):
        comm.sendrecv(torch.empty(0), (comm.rank + 1) % comm.size, torch.empty(0), (comm.rank - 1) % comm.size)
    return comm.clock()


def ring_all_reduce(x, comm):
    if comm.size == 1:
        return
    out = torch.zeros(1)
    comm.sendrecv(torch.full((1,), 7.0), (comm.rank + 1) % comm.size, out, (comm.rank - 1) % comm.size)
    total, own = torch.zeros(x.numel(), dtype=torch.float64), x.double().flatten().tolist()
    now = meet(comm)
    for rank in range(comm.size):
        for i in range(x.numel()):
            if rank == comm.rank:
                comm.compute(own[i])
            later = meet(comm)
            total[i] += later - now
            now = later
    if out.item() == 7.0:
        x.copy_(total.view(x.shape))
