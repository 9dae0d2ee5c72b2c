"""Lab `scaling` answered by others."""

LIBRARY = {
    "fusion": """
from hpcdl.cost import scaling as librarys

def wfbp(buckets, alpha, beta):
    pairs = [librarys.Gradient(*bucket) for bucket in buckets]
    ends = [librarys.finished(pairs[: i + 1], lambda n: alpha + beta * n) for i in range(len(pairs))]
    return [(end - alpha - beta * pair.nbytes, end) for end, pair in zip(ends, pairs)]

def fuse(gradients, alpha, beta):
    pairs = [librarys.Gradient(*gradient) for gradient in gradients]
    return [tuple(bucket) for bucket in librarys.merged(pairs, lambda n: alpha + beta * n)]
""",
    "large_batch": """
import torch
from hpcdl.training import large_batch as large_batches

def stepped(optimizer, weights, gradients, *states):
    params = [w.clone().requires_grad_() for w in weights]
    for param, gradient in zip(params, gradients):
        param.grad = gradient
    made = optimizer(params)
    names = ("velocity",) if len(states) == 1 else ("mean", "square")
    for i, param in enumerate(params):
        made.state[param].update({name: given[i].clone() for name, given in zip(names, states)})
        if len(states) == 2:
            made.state[param]["step"] = torch.zeros(())
    made.step()
    return params, [[made.state[param][name] for param in params] for name in names]

def lars_step(weights, gradients, velocities, lr, momentum=0.9, decay=1e-4, trust=1e-3):
    params, made = stepped(
        lambda params: large_batches.LARS(params, lr, momentum, decay, trust), weights, gradients, velocities
    )
    return [param.detach() for param in params], made[0]

def lamb_step(weights, gradients, momenta, variances, t, lr, decay=0.01):
    params, made = stepped(
        lambda params: large_batches.LAMB(params, lr, weight_decay=decay), weights, gradients, momenta, variances
    )
    return [param.detach() for param in params], made[0], made[1]

def lr_at(step, lr, k, warmup, drops=()):
    grown = large_batches.warm_up(step, large_batches.linear_scaling(lr, k, 1), warmup, lr)
    return grown * 0.1 ** sum(step >= drop for drop in drops)
""",
    "loss_scaler": """
import torch
from hpcdl.training.mixed_precision import LossScaler as Librarys

class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.inner = Librarys(comm, scale, growth, backoff, interval)

    @property
    def scale(self):
        return self.inner.value

    def step(self, gradients, update):
        params = [torch.zeros_like(x, dtype=torch.float32) for x in gradients]
        for param, x in zip(params, gradients):
            param.grad = x.float()
        finite = self.inner.unscale(params)
        if finite:
            update([param.grad for param in params])
        self.inner.update(finite)
        return finite
""",
    "prediction": """
from hpcdl.cost import scaling

def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    from hpcdl.cost import scaling

    def ring(n):
        return 2 * (p - 1) * alpha + 2 * (p - 1) / p * n * beta

    ready = [scaling.Gradient(late * when, nbytes) for when, nbytes in gradients]
    compute = forward + gradients[-1][0]
    parts = {"compute": compute, "stragglers": (late - 1) * compute}
    parts["exposed"] = scaling.iteration(0.0, scaling.merged(ready, ring), ring).exposed
    parts["input"] = max(0.0, loading - sum(parts.values()))
    return parts
""",
}

NOT_IN_LIBRARY = {
    "loading": "hpcdl has neither a queue's waiting nor samples by the step alone",
}

FRAMEWORKS = {
    "loss_scaler": """
import torch

class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm = comm
        self.inner = torch.amp.GradScaler(
            "cpu", init_scale=scale, growth_factor=growth, backoff_factor=backoff, growth_interval=interval
        )
        self.inner.scale(torch.zeros(1))

    @property
    def scale(self):
        return self.inner.get_scale()

    def step(self, gradients, update):
        before, params = self.scale, [torch.nn.Parameter(x.float()) for x in gradients]
        for param, x in zip(params, gradients):
            param.grad = x.float()
        bad = torch.tensor([float(not all(x.isfinite().all() for x in gradients))])
        self.comm.all_reduce(bad)
        if bad > 0:
            params[0].grad.fill_(float("inf"))
        optimizer = torch.optim.SGD(params, lr=0.0)
        self.inner.unscale_(optimizer)
        if not bad > 0:
            update([param.grad for param in params])
        self.inner.step(optimizer)
        self.inner.update()
        return not bool(bad > 0)
""",
}

NOT_IN_FRAMEWORKS = {
    "fusion": "frameworks take buckets of a size; none looks for the best",
    "large_batch": "torch has neither LARS nor LAMB, and its schedulers need one of its optimizers",
    "loading": "torch's DistributedSampler cuts an epoch by ranks, which is not a step's batch",
    "prediction": "no framework predicts an iteration",
}
