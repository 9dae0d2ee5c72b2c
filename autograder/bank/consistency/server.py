"""Wrong answers to `serve` and `work`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "consistency.server"
VALUES = "as_one_machine"
ONCE = ("each_gradient_once", "never_more_than_s_behind", "two_messages", "nobody_waits_who_may_go_on")
BEHIND = "never_more_than_s_behind"
TIME = "nobody_waits_who_may_go_on"


@wrong(HERE, "less than s ahead", fails=TIME, says="You hold workers back one iteration too early")
def serve(comm, w, staleness, steps, lr):
    w, counts, held = w.clone(), [0] * (comm.size - 1), []
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w -= lr * buffers[i]
        counts[i] += 1
        held.append(i)
        for j in [j for j in held if counts[j] < min(counts) + max(staleness, 1) or counts[j] == min(counts)]:
            held.remove(j)
            comm.send(w, j + 1)
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    return w


@wrong(HERE, "one more than s ahead", fails=(VALUES, BEHIND, TIME), says="Hold its w back until the slowest worker")
def serve(comm, w, staleness, steps, lr):
    w, counts, held = w.clone(), [0] * (comm.size - 1), []
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w -= lr * buffers[i]
        counts[i] += 1
        held.append(i)
        for j in [j for j in held if counts[j] <= min(counts) + staleness + 1]:
            held.remove(j)
            comm.send(w, j + 1)
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    return w


@wrong(HERE, "no worker is held back", fails=(VALUES, BEHIND, TIME), says="It continues although it is too far ahead")
def serve(comm, w, staleness, steps, lr):
    w, counts = w.clone(), [0] * (comm.size - 1)
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w -= lr * buffers[i]
        counts[i] += 1
        comm.send(w, i + 1)
        if counts[i] < steps:
            requests[i] = comm.irecv(buffers[i], i + 1)
    return w


@wrong(HERE, "a barrier for SSP: right values, and idle", fails=TIME, says="That is a barrier: all wait for all")
def serve(comm, w, staleness, steps, lr):
    w, buffer = w.clone(), torch.empty_like(w)
    for _ in range(steps):
        for worker in range(1, comm.size):
            comm.recv(buffer, worker)
            w -= lr * buffer
        for worker in range(1, comm.size):
            comm.send(w, worker)
    return w


@wrong(  # it holds no worker back, either
    HERE,
    "receives in the order of ranks",
    fails=(VALUES, BEHIND, TIME),
    says="receives in the order of ranks",
    causes=2,
)
def serve(comm, w, staleness, steps, lr):
    w, buffer = w.clone(), torch.empty_like(w)
    for _ in range(steps):
        for worker in range(1, comm.size):
            comm.recv(buffer, worker)
            w -= lr * buffer
            comm.send(w, worker)
    return w


@wrong(HERE, "the mean over the workers", fails=(VALUES, *ONCE), says="the server adds each gradient as it comes")
def serve(comm, w, staleness, steps, lr):
    w, counts, held = w.clone(), [0] * (comm.size - 1), []
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w -= lr * buffers[i] / len(counts)
        counts[i] += 1
        held.append(i)
        for j in [j for j in held if counts[j] <= min(counts) + staleness]:
            held.remove(j)
            comm.send(w, j + 1)
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    return w


@wrong(HERE, "answers before it applies", fails=(VALUES, BEHIND), says="apply the gradient first, then send w")
def serve(comm, w, staleness, steps, lr):
    w, counts, held = w.clone(), [0] * (comm.size - 1), []
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        counts[i] += 1
        held.append(i)
        ready = [j for j in held if counts[j] <= min(counts) + staleness]
        for j in ready:
            held.remove(j)
            comm.send(w, j + 1)
        w -= lr * buffers[i]
        for j in ready:
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    return w


@wrong(HERE, "averages weights that are old", fails=(VALUES, *ONCE), says="of them are in the w that serve returns")
def serve(comm, w, staleness, steps, lr):
    w, counts, held = w.clone(), [0] * (comm.size - 1), []
    old, buffers = [w.clone() for _ in counts], [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w = (w + (old[i] - lr * buffers[i])) / 2
        counts[i] += 1
        held.append(i)
        for j in [j for j in held if counts[j] <= min(counts) + staleness]:
            held.remove(j)
            old[j] = w.clone()
            comm.send(w, j + 1)
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    return w


@wrong(
    HERE,
    "a gradient is applied again when its answer leaves",
    fails=(VALUES, *ONCE),
    says="Each gradient is applied twice",
)
def serve(comm, w, staleness, steps, lr):
    w, counts, held = w.clone(), [0] * (comm.size - 1), []
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w -= lr * buffers[i]
        counts[i] += 1
        held.append(i)
        ready = [j for j in held if counts[j] <= min(counts) + staleness]
        for j in ready:
            held.remove(j)
            w -= lr * buffers[j]
        for j in ready:
            comm.send(w, j + 1)
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    return w


@wrong(HERE, "a barrier in each step", fails=("two_messages", TIME), says="comm.barrier makes all ranks wait")
def train(comm, grad, w, staleness, steps, lr):
    if comm.rank == 0:
        w, buffer = w.clone(), torch.empty_like(w)
        for _ in range(steps):
            for worker in range(1, comm.size):
                comm.recv(buffer, worker)
                w -= lr * buffer
            for worker in range(1, comm.size):
                comm.send(w, worker)
            comm.barrier()
        return w
    w = w.clone()
    for k in range(steps):
        comm.send(grad(w, k), 0)
        comm.recv(w, 0)
        comm.barrier()
    return w


@wrong(HERE, "computes with the first weights forever", fails=(VALUES, BEHIND), says="of its own 1 gradients before")
def work(comm, grad, w, steps):
    new = w.clone()
    for k in range(steps):
        comm.send(grad(w, k), 0)
        comm.recv(new, 0)
    return new


@wrong(HERE, "answers without a wait", fails="two_messages", says="is never waited for")
def serve(comm, w, staleness, steps, lr):
    w, counts, held = w.clone(), [0] * (comm.size - 1), []
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w -= lr * buffers[i]
        counts[i] += 1
        held.append(i)
        for j in [j for j in held if counts[j] <= min(counts) + staleness]:
            held.remove(j)
            comm.isend(w.clone(), j + 1)
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    return w


@wrong(HERE, "answers that change before they have left", fails="two_messages", says="before its tensor is changed")
def serve(comm, w, staleness, steps, lr):
    w, counts, held, sent = w.clone(), [0] * (comm.size - 1), [], []
    buffers = [torch.empty_like(w) for _ in counts]
    requests = [comm.irecv(buffer, i + 1) for i, buffer in enumerate(buffers)]
    for _ in range(steps * len(counts)):
        i = comm.wait_any(requests)
        w -= lr * buffers[i]
        counts[i] += 1
        held.append(i)
        for j in [j for j in held if counts[j] <= min(counts) + staleness]:
            held.remove(j)
            sent.append(comm.isend(w, j + 1))
            if counts[j] < steps:
                requests[j] = comm.irecv(buffers[j], j + 1)
    for request in sent:
        request.wait()
    return w


@wrong(HERE, "works in the weights it was given", fails=VALUES, says="changed its argument w")
def work(comm, grad, w, steps):
    for k in range(steps):
        comm.send(grad(w, k), 0)
        comm.recv(w, 0)
    return w


slip(
    HERE,
    "the server works in the weights it was given",
    "w, counts, held = w.clone(), ",
    "counts, held = ",
    fails="as_one_machine",
    says="changed its argument w",
)

slip(
    HERE,
    "asks for gradient 0 in each step",
    "grad(w, k)",
    "grad(w, 0)",
    fails="as_one_machine nobody_waits_who_may_go_on",
    says="s = 0",
)

slip(
    HERE,
    "leaves the last weights with the server",
    "        comm.recv(w, 0)\n    return w",
    "        before = w.clone()\n        comm.recv(w, 0)\n    return before",
    fails="as_one_machine",
    says="returns, other weights than the last that it has received",
)
