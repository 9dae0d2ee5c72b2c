"""Lab `scaling` answered rightly, in many styles: each cell below replaces the reference's answer."""

# %% fusion: recursion that remembers where the last bucket begins
from functools import lru_cache


def wfbp(buckets, alpha, beta):
    times = []
    for ready, nbytes in buckets:
        begin = max([ready, *(end for _, end in times[-1:])])
        times.append((begin, begin + alpha + beta * nbytes))
    return times


def fuse(gradients, alpha, beta):
    sizes = [nbytes for _, nbytes in gradients]

    @lru_cache(maxsize=None)
    def best(k):
        if k == 0:
            return 0.0, None
        ready = gradients[k - 1][0]
        return min((max(best(i)[0], ready) + alpha + beta * sum(sizes[i:k]), i) for i in range(k))

    for k in range(len(gradients)):
        best(k)  # the short ones first: no deep recursion
    buckets, k = [], len(gradients)
    while k:
        i = best(k)[1]
        buckets.insert(0, (gradients[k - 1][0], sum(sizes[i:k])))
        k = i
    return buckets


# %% fusion: lists of ends and cuts, sums of bytes ahead
from itertools import accumulate


def wfbp(buckets, alpha, beta):
    free, spans = 0.0, []
    for ready, nbytes in buckets:
        start = ready if ready > free else free
        free = start + (alpha + nbytes * beta)
        spans += [(start, free)]
    return spans


def fuse(gradients, alpha, beta):
    n, total = len(gradients), [0, *accumulate(nbytes for _, nbytes in gradients)]
    ends, cuts = [0.0] + [float("inf")] * n, [0] * (n + 1)
    for k in range(1, n + 1):
        for i in range(k):
            end = max(ends[i], gradients[k - 1][0]) + alpha + beta * (total[k] - total[i])
            if end < ends[k]:
                ends[k], cuts[k] = end, i
    places = [n]
    while places[-1]:
        places.append(cuts[places[-1]])
    places.reverse()
    return [(gradients[b - 1][0], total[b] - total[a]) for a, b in zip(places, places[1:])]


# %% large_batch: helpers for one tensor
def length(x):
    return float((x * x).sum()) ** 0.5


def ratio_of(above, below):
    return above / below if above and below else 1.0


def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    new_w, new_v = [], []
    for w, g, v in zip(weights, gradients, velocities):
        step = lr
        if w.dim() > 1:
            step *= ratio_of(trust * length(w), length(g) + decay * length(w)) if length(w) else 1.0
            g = g + decay * w
        velocity = momentum * v + step * g
        new_v.append(velocity)
        new_w.append(w - velocity)
    return new_w, new_v


def lamb_step(weights, gradients, momenta, variances, t, lr, decay=0.01):
    new_w, new_m, new_v = [], [], []
    for w, g, m, v in zip(weights, gradients, momenta, variances):
        m = torch.lerp(m, g, 0.1)
        v = 0.999 * v + 0.001 * g.square()
        u = m / (1 - 0.9**t) / (torch.sqrt(v / (1 - 0.999**t)) + 1e-6)
        step = lr
        if w.dim() > 1:
            u = u + decay * w
            step = lr * ratio_of(length(w), length(u))
        new_w.append(w - step * u)
        new_m.append(m)
        new_v.append(v)
    return new_w, new_m, new_v


def lr_at(step, lr, k, warmup, drops=()):
    if step < warmup:
        rate = lr + (k * lr - lr) * step / warmup
    else:
        rate = k * lr
    for drop in drops:
        if step >= drop:
            rate /= 10
    return rate


# %% large_batch: copies in place, torch.where
def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    weights, velocities = [w.clone() for w in weights], [v.clone() for v in velocities]
    for w, g, v in zip(weights, gradients, velocities):
        rate = torch.tensor(lr, dtype=w.dtype)
        if w.ndim > 1:
            norm, below = torch.linalg.norm(w), torch.linalg.norm(g) + decay * torch.linalg.norm(w)
            rate = rate * torch.where((norm > 0) & (below > 0), trust * norm / below, 1.0)
            g = torch.add(g, w, alpha=decay)
        v.mul_(momentum).add_(rate * g)
        w.sub_(v)
    return weights, velocities


def lamb_step(weights, gradients, momenta, variances, t, lr, decay=0.01):
    weights = [w.clone() for w in weights]
    momenta = [m.mul(0.9).add(g, alpha=0.1) for m, g in zip(momenta, gradients)]
    variances = [v.mul(0.999).addcmul(g, g, value=0.001) for v, g in zip(variances, gradients)]
    for w, m, v in zip(weights, momenta, variances):
        update = m.div(1 - 0.9**t).div(v.div(1 - 0.999**t).sqrt().add(1e-6))
        ratio = 1.0
        if w.ndim > 1:
            update.add_(w, alpha=decay)
            a, b = w.norm().item(), update.norm().item()
            ratio = a / b if a * b > 0 else 1.0
        w.sub_(update, alpha=lr * ratio)
    return weights, momenta, variances


lr_at = lambda step, lr, k, warmup, drops=(): (
    lr * (1 + (k - 1) * (step / warmup if step < warmup else 1)) * 10.0 ** -len([d for d in drops if d <= step])
)


# %% loss_scaler: the worst of all numbers travels
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm = comm
        self.scale = scale
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.in_a_row = 0

    def all_finite(self, gradients):
        bad = torch.zeros(1)
        for g in gradients:
            bad += (~torch.isfinite(g)).sum()
        self.comm.all_reduce(bad)
        return bad.item() == 0

    def step(self, gradients, update):
        if not self.all_finite(gradients):
            self.scale *= self.backoff
            self.in_a_row = 0
            return False
        update([g.to(torch.float32) / self.scale for g in gradients])
        self.in_a_row += 1
        if self.in_a_row >= self.interval:
            self.in_a_row = 0
            self.scale *= self.growth
        return True


# %% loss_scaler: a vote, and multiplication by the inverse
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.__dict__.update(comm=comm, scale=scale, growth=growth, backoff=backoff, interval=interval, good=0)

    def step(self, gradients, update):
        unscaled = [gradient.float().mul(1 / self.scale) for gradient in gradients]
        votes = torch.tensor([1.0 if all(bool(torch.isfinite(u).all()) for u in unscaled) else 0.0])
        self.comm.all_reduce(votes)
        if go := int(votes) == self.comm.size:
            update(unscaled)
            self.good = (self.good + 1) % self.interval
            self.scale *= self.growth if self.good == 0 else 1
        else:
            self.good, self.scale = 0, self.scale * self.backoff
        return go


# %% loading: a heap of workers
import heapq
import math


def input_rate(stages):
    slowest = float("inf")
    for workers, seconds in stages:
        slowest = min(slowest, workers / seconds)
    return slowest


def waiting(load, compute, workers, room):
    free, taken, total, clock = [0.0] * workers, [], 0.0, 0.0
    for i, seconds in enumerate(load):
        begin = heapq.heappop(free)
        if i >= room:
            begin = max(begin, taken[i - room])
        heapq.heappush(free, begin + seconds)
        start = max(clock, begin + seconds)
        total += start - clock
        taken.append(start)
        clock = start + compute
    return total


def samples(step, rank, p, n, batch, seed):
    steps = math.ceil(n / batch)
    order = shuffled(n, seed, step // steps)
    begin = (step % steps) * batch
    return torch.tensor_split(order[begin : begin + batch], p)[rank]


# %% loading: the whole time less the computing
input_rate = lambda stages: 1 / max(seconds / workers for workers, seconds in stages)


def waiting(load, compute, workers, room):
    workers_free, begins = [0.0] * workers, []
    for i, seconds in enumerate(load):
        w = min(range(workers), key=lambda w: workers_free[w])
        begin = max([workers_free[w]] + ([begins[i - room]] if i >= room else []))
        workers_free[w] = begin + seconds
        before = begins[-1] + compute if begins else 0.0
        begins.append(max(before, workers_free[w]))
    return begins[-1] - compute * (len(load) - 1)


def samples(step, rank, p, n, batch, seed):
    batches = [(n - k if n - k < batch else batch, k) for k in range(0, n, batch)]
    size, first = batches[step % len(batches)]
    mine = shuffled(n, seed, step // len(batches))[first : first + size]
    bounds = [r * (size // p) + min(r, size % p) for r in range(p + 1)]
    return mine[bounds[rank] : bounds[rank + 1]]


# %% prediction: early returns, names for everything
def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    backward = gradients[-1][0]
    compute = forward + backward
    a, b = alpha * 2 * (p - 1), beta * 2 * (p - 1) / p
    arriving = [(when * late, nbytes) for when, nbytes in gradients]
    messages = wfbp(fuse(arriving, a, b), a, b)
    exposed = messages[-1][1] - late * backward
    stragglers = compute * late - compute
    busy = compute + stragglers + exposed
    return dict(
        compute=compute, stragglers=stragglers, exposed=exposed, input=loading - busy if loading > busy else 0.0
    )


# %% prediction: max of pairs
class Ring:
    def __init__(self, p, alpha, beta):
        self.alpha, self.beta = 2 * (p - 1) * alpha, 2 * (p - 1) * beta / p

    def end(self, gradients):
        buckets = fuse(gradients, self.alpha, self.beta)
        *_, (_, end) = wfbp(buckets, self.alpha, self.beta)
        return end


def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    last, _ = gradients[-1]
    out = {"compute": forward + last}
    out["stragglers"] = out["compute"] * (late - 1)
    out["exposed"] = Ring(p, alpha, beta).end([(late * t, n) for t, n in gradients]) - late * last
    out["input"] = max(loading - out["compute"] - out["stragglers"] - out["exposed"], 0.0)
    return out


# %% fusion: from the end, with a list for each beginning
def wfbp(buckets, alpha, beta):
    ends = [0.0]
    for ready, nbytes in buckets:
        ends.append(max(ready, ends[-1]) + alpha + beta * nbytes)
    return [(end - alpha - beta * nbytes, end) for end, (_, nbytes) in zip(ends[1:], buckets)]


def fuse(gradients, alpha, beta):
    ways = [(0.0, [])]
    for k in range(1, len(gradients) + 1):
        found = None
        for i in range(k):
            bucket = gradients[k - 1][0], sum(nbytes for _, nbytes in gradients[i:k])
            end = max(ways[i][0], bucket[0]) + alpha + beta * bucket[1]
            if found is None or end < found[0]:
                found = end, [*ways[i][1], bucket]
        ways.append(found)
    return ways[-1][1]


# %% large_batch: comprehensions
import math


def trust_ratio(w, above, below):
    return above / below if w.dim() > 1 and above > 0 and below > 0 else 1.0


def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    decays = [decay if w.dim() > 1 else 0.0 for w in weights]
    ratios = [
        trust_ratio(w, trust * w.norm(), g.norm() + decay * w.norm()) if w.norm() > 0 else 1.0
        for w, g in zip(weights, gradients)
    ]
    steps = [lr * r * (g + d * w) for w, g, d, r in zip(weights, gradients, decays, ratios)]
    kept = [momentum * v + step for v, step in zip(velocities, steps)]
    return [w - v for w, v in zip(weights, kept)], kept


def lamb_step(weights, gradients, momenta, variances, t, lr, decay=0.01):
    ms = [m + (g - m) * (1 - 0.9) for m, g in zip(momenta, gradients)]
    vs = [v + (g**2 - v) * (1 - 0.999) for v, g in zip(variances, gradients)]
    adam = [(m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-6) for m, v in zip(ms, vs)]
    steps = [u + decay * w if w.dim() > 1 else u for w, u in zip(weights, adam)]
    return [w - lr * trust_ratio(w, w.norm(), u.norm()) * u for w, u in zip(weights, steps)], ms, vs


def lr_at(step, lr, k, warmup, drops=()):
    rate = k * lr if step >= warmup else lr * ((warmup - step) + k * step) / warmup
    return rate * math.prod(0.1 for drop in drops if step >= drop)


# %% loss_scaler: a nested class of what changes
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.interval = comm, scale, interval
        self.up, self.down = growth, backoff
        self.since = 0

    def step(self, gradients, update):
        flat = torch.cat([g.float().flatten() / self.scale for g in gradients])
        here = torch.isfinite(flat).all()
        missing = torch.ones(1) - here.float()
        self.comm.all_reduce(missing)
        if missing.item():
            self.since, self.scale = 0, self.scale * self.down
            return False
        sizes = [g.numel() for g in gradients]
        update([part.view_as(g) for part, g in zip(flat.split(sizes), gradients)])
        self.since += 1
        if self.since % self.interval == 0:
            self.scale, self.since = self.scale * self.up, 0
        return True


# %% prediction: a chain of sums
def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    times, sizes = zip(*gradients)
    slow = [late * when for when in times]
    latency, per_byte = 2 * (p - 1) * alpha, 2 * (p - 1) / p * beta
    end = max(end for _, end in wfbp(fuse(list(zip(slow, sizes)), latency, per_byte), latency, per_byte))
    result = {
        "compute": forward + times[-1],
        "stragglers": late * (forward + times[-1]) - (forward + times[-1]),
        "exposed": end - slow[-1],
    }
    result["input"] = max(0, loading - sum(result.values()))
    return result


# %% loading: a clock for each worker in a sorted list
def input_rate(stages):
    rates = [workers / seconds for workers, seconds in stages]
    rates.sort()
    return rates[0]


def waiting(load, compute, workers, room):
    clocks, moments, lost = [0.0] * workers, [], 0.0
    ready_to_train = 0.0
    for i in range(len(load)):
        clocks.sort()
        begin = clocks[0] if i < room else max(clocks[0], moments[i - room])
        clocks[0] = begin + load[i]
        moment = clocks[0] if clocks[0] > ready_to_train else ready_to_train
        lost += moment - ready_to_train
        moments.append(moment)
        ready_to_train = moment + compute
    return lost


def samples(step, rank, p, n, batch, seed):
    per_epoch = (n + batch - 1) // batch
    order = shuffled(n, seed, step // per_epoch)
    first = (step % per_epoch) * batch
    mine = order[first : first + batch]
    return torch.tensor_split(mine, p)[rank]


# %% fusion: recursion with a cache
from functools import cache


def wfbp(buckets, alpha, beta):
    spans, free = [], 0.0
    for ready, nbytes in buckets:
        begin = max(ready, free)
        free = begin + alpha + beta * nbytes
        spans.append((begin, free))
    return spans


def fuse(gradients, alpha, beta):
    n = len(gradients)
    sizes = [0]
    for _, nbytes in gradients:
        sizes.append(sizes[-1] + nbytes)
    best = [(0.0, None)]
    for k in range(1, n + 1):
        ready = gradients[k - 1][0]
        options = [(max(ready, best[j][0]) + alpha + beta * (sizes[k] - sizes[j]), j) for j in range(k)]
        best.append(min(options))
    out, k = [], n
    while k:
        j = best[k][1]
        out.append((gradients[k - 1][0], sizes[k] - sizes[j]))
        k = j
    return out[::-1]
