"""Wrong answers to `serve` and `work`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("consistency.server")
VALUES = "as_one_machine"
ONCE = ("each_gradient_once", "never_more_than_s_behind", "two_messages", "nobody_waits_who_may_go_on")
BEHIND = "never_more_than_s_behind"
TIME = "nobody_waits_who_may_go_on"

slip(
    "less than s ahead",
    "for j in [j for j in held if counts[j] <= min(counts) + staleness]:",
    "for j in [j for j in held if counts[j] < min(counts) + max(staleness, 1) or counts[j] == min(counts)]:",
    fails=TIME,
    says="You hold workers back one iteration too early",
)
slip(
    "one more than s ahead",
    "for j in [j for j in held if counts[j] <= min(counts) + staleness]:",
    "for j in [j for j in held if counts[j] <= min(counts) + staleness + 1]:",
    fails=(VALUES, BEHIND, TIME),
    says="Hold its w back until the slowest worker",
)
slip(
    "a rate of its own",
    "w -= lr * buffers[i]",
    "w -= 0.05 * buffers[i]",
    fails=(VALUES, *ONCE),
    says="the w of rank 1's gradient 1",
)


@wrong("no worker is held back", fails=(VALUES, BEHIND, TIME), says="It continues although it is too far ahead")
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


@wrong("a barrier for SSP: right values, and idle", fails=TIME, says="That is a barrier: all wait for all")
def serve(comm, w, staleness, steps, lr):
    w, buffer = w.clone(), torch.empty_like(w)
    for _ in range(steps):
        for worker in range(1, comm.size):
            comm.recv(buffer, worker)
            w -= lr * buffer
        for worker in range(1, comm.size):
            comm.send(w, worker)
    return w


@wrong("receives in the order of ranks", fails=(VALUES, BEHIND, TIME), says="receives in the order of ranks", causes=2)
def serve(comm, w, staleness, steps, lr):
    w, buffer = w.clone(), torch.empty_like(w)
    for _ in range(steps):
        for worker in range(1, comm.size):
            comm.recv(buffer, worker)
            w -= lr * buffer
            comm.send(w, worker)
    return w


slip(
    "the mean over the workers",
    "w -= lr * buffers[i]",
    "w -= lr * buffers[i] / len(counts)",
    fails=(VALUES, *ONCE),
    says="the server adds each gradient as it comes",
)
slip(
    "answers before it applies",
    "        w -= lr * buffers[i]\n",
    "",
    "for j in [j for j in held if counts[j] <= min(counts) + staleness]:",
    "ready = [j for j in held if counts[j] <= min(counts) + staleness]\n        for j in ready:",
    "            if counts[j] < steps:",
    "        w -= lr * buffers[i]\n        for j in ready:\n            if counts[j] < steps:",
    fails=(VALUES, BEHIND, TIME),
    says="apply the gradient first, then send w",
)
slip(
    "averages weights that are old",
    "buffers = [torch.empty_like(w) for _ in counts]",
    "old, buffers = [w.clone() for _ in counts], [torch.empty_like(w) for _ in counts]",
    "w -= lr * buffers[i]",
    "w = (w + (old[i] - lr * buffers[i])) / 2",
    "comm.send(w, j + 1)",
    "old[j] = w.clone()\n            comm.send(w, j + 1)",
    fails=(VALUES, *ONCE),
    says="of them are in the w that serve returns",
)
slip(
    "a gradient is applied again when its answer leaves",
    "for j in [j for j in held if counts[j] <= min(counts) + staleness]:",
    "ready = [j for j in held if counts[j] <= min(counts) + staleness]\n        for j in ready:",
    "comm.send(w, j + 1)",
    "w -= lr * buffers[j]\n        for j in ready:\n            comm.send(w, j + 1)",
    fails=(VALUES, *ONCE),
    says="Each gradient is applied twice",
)


@wrong("a barrier in each step", fails=("two_messages", TIME), says="comm.barrier makes all ranks wait")
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


@wrong("computes with the first weights forever", fails=(VALUES, BEHIND, TIME), says="of its own 1 gradients before")
def work(comm, grad, w, steps):
    new = w.clone()
    for k in range(steps):
        comm.send(grad(w, k), 0)
        comm.recv(new, 0)
    return new


slip(
    "answers without a wait",
    "comm.send(w, j + 1)",
    "comm.isend(w.clone(), j + 1)",
    fails=("two_messages", TIME),
    says="is never waited for",
)
slip(
    "answers that change before they have left",
    "w, counts, held = w.clone(), [0] * (comm.size - 1), []",
    "w, counts, held, sent = w.clone(), [0] * (comm.size - 1), [], []",
    "comm.send(w, j + 1)",
    "sent.append(comm.isend(w, j + 1))",
    "requests[j] = comm.irecv(buffers[j], j + 1)",
    "requests[j] = comm.irecv(buffers[j], j + 1)\n    for request in sent:\n        request.wait()",
    fails=("two_messages", TIME),
    says="before its tensor is changed",
)
slip(
    "zeros where no worker is held back",
    "comm.send(w, j + 1)",
    "comm.send(w * (staleness < 9), j + 1)",
    fails=TIME,
    says="w of rank 1",
)
slip(
    "sends without a wait where s is 1",
    "comm.send(w, j + 1)",
    "(comm.isend if staleness == 1 else comm.send)(w.clone(), j + 1)",
    fails=TIME,
    says="is never waited for",
)
slip("works in the weights it was given", "    w = w.clone()\n", "", fails=VALUES, says="changed its argument w")
slip(
    "the server works in the weights it was given",
    "w, counts, held = w.clone(), ",
    "counts, held = ",
    fails="as_one_machine",
    says="changed its argument w",
)
slip(
    "asks for gradient 0 in each step",
    "grad(w, k)",
    "grad(w, 0)",
    fails="as_one_machine nobody_waits_who_may_go_on",
    says="s = 0",
)
slip(
    "leaves the last weights with the server",
    "        comm.recv(w, 0)\n    return w",
    "        before = w.clone()\n        comm.recv(w, 0)\n    return before",
    fails="as_one_machine",
    says="returns, other weights than the last that it has received",
)
slip(
    "begins at 0 where s is above 0",
    "w, counts, held = w.clone(), ",
    "w, counts, held = w * (staleness == 0), ",
    fails=ONCE,
    says="the w that serve returns",
)
slip(
    "a learning rate of 1 where s is above 0",
    "w -= lr * buffers[i]",
    "w -= (lr if staleness == 0 else 1.0) * buffers[i]",
    fails=ONCE,
    says="of them are in the w that serve returns",
)
slip(
    "receives float64, whatever w is",
    "torch.empty_like(w) for",
    "torch.empty_like(w, dtype=torch.float64) for",
    fails=VALUES,
    says="both sides need the same dtype",
)


@wrong("workers without a server", fails=(VALUES, *ONCE), says="workers send to each other")
def train(comm, grad, w, staleness, steps, lr):
    w = w.clone()
    others = [rank for rank in range(1, comm.size) if rank != comm.rank]
    for k in range(steps * (comm.rank > 0)):
        g = grad(w, k)
        theirs = [torch.empty_like(g) for _ in others]
        requests = [comm.isend(g, rank) for rank in others]
        requests += [comm.irecv(x, rank) for x, rank in zip(theirs, others, strict=True)]
        for request in requests:
            request.wait()
        w = w - lr * sum(theirs, g)
    if comm.rank == 1:
        comm.send(w, 0)
    elif comm.rank == 0:
        comm.recv(w, 1)
    return w
