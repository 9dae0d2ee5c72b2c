"""Answers to exercises of lab `scaling` whose verdict was wrong once: see `test_verdicts`."""


# %% large_batch: drops not in warmup -> the_learning_rate
def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    ws, vs = [], []
    for w, g, v in zip(weights, gradients, velocities):
        d = decay if w.dim() > 1 else 0.0
        size, below = w.norm(), g.norm() + d * w.norm()
        ratio = trust * size / below if w.dim() > 1 and size > 0 and below > 0 else 1.0
        v = momentum * v + lr * ratio * (g + d * w)
        ws.append(w - v)
        vs.append(v)
    return ws, vs


def lamb_step(weights, gradients, momenta, variances, t, lr, decay=0.01):
    ws, ms, vs = [], [], []
    for w, g, m, v in zip(weights, gradients, momenta, variances):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        u = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-6)
        ratio = 1.0
        if w.dim() > 1:
            u = u + decay * w
            if w.norm() > 0 and u.norm() > 0:
                ratio = w.norm() / u.norm()
        ws.append(w - lr * ratio * u)
        ms.append(m)
        vs.append(v)
    return ws, ms, vs


def lr_at(step, lr, k, warmup, drops=()):
    if step < warmup:
        return lr * (1 + (k - 1) * step / warmup)
    rate = lr * k
    return rate / 10 ** sum(step >= d for d in drops)


# %% loss_scaler: sum in fp16 -> left_out
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff, self.interval, self.good = (
            comm,
            scale,
            growth,
            backoff,
            interval,
            0,
        )

    def step(self, gradients, update):
        unscaled = [g.float() / self.scale for g in gradients]
        bad = torch.tensor([float(not all(g.sum().isfinite() for g in gradients))])
        self.comm.all_reduce(bad)
        if bad.item() > 0:
            self.scale *= self.backoff
            self.good = 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale *= self.growth
            self.good = 0
        return True


# %% loss_scaler: norm in fp32 of scaled squares -> left_out
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff, self.interval, self.good = (
            comm,
            scale,
            growth,
            backoff,
            interval,
            0,
        )

    def step(self, gradients, update):
        unscaled = [g.float() / self.scale for g in gradients]
        bad = torch.tensor([float(not all((g.float() ** 2).sum().half().isfinite() for g in gradients))])
        self.comm.all_reduce(bad)
        if bad.item() > 0:
            self.scale *= self.backoff
            self.good = 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale *= self.growth
            self.good = 0
        return True


# %% loss_scaler: attribute  scale -> full points
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self._scale, self.growth, self.backoff, self.interval, self.good = (
            comm,
            scale,
            growth,
            backoff,
            interval,
            0,
        )

    def step(self, gradients, update):
        unscaled = [g.float() / self._scale for g in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])
        self.comm.all_reduce(bad)
        if bad.item() > 0:
            self._scale *= self.backoff
            self.good = 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self._scale *= self.growth
            self.good = 0
        return True
