"""Lab 02 answered by others."""

LIBRARY = {
    "gradient_descent": "from hpcdl.numerics.descent import descend as gradient_descent",
    "mse_grad": "from hpcdl.numerics.descent import mse_grad, mse_loss",
    "max_stable_lr": "from hpcdl.numerics.descent import max_stable_lr",
    "minibatches": """
from hpcdl.ddp.sampler import ShardedSampler

def minibatches(n, batch_size, generator):
    yield from ShardedSampler(n, batch_size, 0, 1)
""",
    "sgd": """
from hpcdl.numerics.descent import descend

def sgd(grad, n, w0, lr, batch_size, epochs, generator):
    return descend(grad, w0, lr, epochs)
""",
    "adam_step": """
from hpcdl.training.momentum import Momentum

def momentum_step(w, g, v, lr, beta):
    return Momentum([w], lr, beta).step()

def adam_step(w, g, state, lr):
    return Momentum([w], lr, 0.9).step()
""",
}
NOT_IN_LIBRARY = {
    "unmask_lr_schedule": "what to ask eight programs is no function of anybody's",
    "parallel_gradient": "a weighted mean; ranks of hpcdl.ddp have it only with a communicator",
    "lr_schedule": "hpcdl has no schedule",
    "rates": "hpcdl predicts seconds of a step, not how many steps an error needs",
}
STEP = """
import torch

def {0}({1}):
    w = w{2}.clone().requires_grad_()
    w.grad = torch.ones_like(w)
    torch.optim.{3}([w], lr=lr).step()
    return w.detach(), {{}}
"""
FRAMEWORKS = {
    "gradient_descent": STEP.format("gradient_descent", "grad, w0, lr, steps", "0", "SGD"),
    "mse_grad": """
import torch
from torch.nn import functional

def mse_loss(w, X, y):
    return functional.mse_loss(X @ w, y)

def mse_grad(w, X, y):
    w = w.clone().requires_grad_()
    ((X @ w - y) ** 2).mean().backward()
    return w.grad
""",
    "minibatches": """
from torch.utils.data import DataLoader

def minibatches(n, batch_size, generator):
    yield from DataLoader(range(n), batch_size, shuffle=True, generator=generator)
""",
    "sgd": STEP.format("sgd", "grad, n, w0, lr, batch_size, epochs, generator", "0", "SGD"),
    "adam_step": STEP.format("momentum_step", "w, g, v, lr, beta", "", "SGD")
    + STEP.format("adam_step", "w, g, state, lr", "", "Adam"),
    "lr_schedule": """
import torch

def lr_schedule(step, warmup, total, peak):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=peak)
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warmup).get_last_lr()[0]
""",
}
NOT_IN_FRAMEWORKS = {
    "unmask_lr_schedule": "what to ask eight programs is no function of anybody's",
    "max_stable_lr": "the eigenvalues are torch's for the reference too: what to do with them is the question",
    "parallel_gradient": "a weighted mean",
    "rates": "two formulas of the lecture",
}
