"""Lab 04 answered by others."""

LIBRARY = {
    "feedforward": "from hpcdl.nn.mlp import feedforward",
    "output_error": """
from hpcdl.nn import mlp

def output_error(a, y, z):
    return mlp.errors([], [z], a, y)[-1]
""",
    "backpropagate_error": """
from hpcdl.nn.mlp import errors

def backpropagate_error(delta, w_next, z):
    return errors([w_next, w_next], [z, z], delta, delta)[0]
""",
    "gradients": """
from hpcdl.nn import mlp

def gradients(deltas, activations):
    return mlp.backprop([], [], activations[0], deltas[-1])
""",
    "backprop": "import sys\nimport hpcdl.nn.mlp\nbackprop = sys.modules['hpcdl.nn.mlp'].backprop",
    "backward": "from hpcdl.nn.value import Value, backward",
    "train": """
from hpcdl.nn import mlp

def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    mlp.backprop(weights, biases, X, X)
    return weights, biases
""",
}
NOT_IN_LIBRARY = {
    "unmask_softmax": "what to ask eight programs is no function of anybody's",
    "softmax_cross_entropy": "hpcdl takes torch's",
    "stop_at": "hpcdl trains for a given number of steps",
}
FRAMEWORKS = {
    "output_error": """
import torch

def output_error(a, y, z):
    z = z.clone().requires_grad_()
    (0.5 * (y - torch.sigmoid(z)) ** 2).sum().backward()
    return z.grad
""",
    "backpropagate_error": """
import torch

def backpropagate_error(delta, w_next, z):
    z = z.clone().requires_grad_()
    return torch.autograd.grad(torch.sigmoid(z) @ w_next.T, z, delta)[0]
""",
    "gradients": """
import torch

def gradients(deltas, activations):
    made = [torch.zeros(len(d), len(a), dtype=a.dtype, requires_grad=True) for d, a in zip(deltas, activations)]
    for w, d, a in zip(made, deltas, activations):
        (w @ a).backward(d)
    return [w.grad for w in made], deltas
""",
    "backprop": """
import torch

def backprop(weights, biases, X, Y):
    weights, biases = ([p.clone().requires_grad_() for p in params] for params in (weights, biases))
    a = X
    for w, b in zip(weights, biases):
        a = torch.sigmoid(a @ w.T + b)
    (0.5 * ((Y - a) ** 2).sum() / len(X)).backward()
    return [w.grad for w in weights], [b.grad for b in biases]
""",
    "backward": """
import torch

def backward(value):
    x = torch.tensor(value.data, requires_grad=True)
    x.backward()
    value.grad = x.grad.item()
""",
    "softmax_cross_entropy": """
import torch
from torch.nn.functional import cross_entropy

def softmax_cross_entropy(logits, labels):
    logits = logits.clone().requires_grad_()
    loss = cross_entropy(logits, labels)
    loss.backward()
    return loss.detach(), logits.grad
""",
    "train": """
import torch

def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    weights, biases = ([p.clone().requires_grad_() for p in params] for params in (weights, biases))
    torch.optim.SGD([*weights, *biases], lr=lr).step()
    return weights, biases
""",
    "stop_at": """
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    def plateau():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        return optimizer, ReduceLROnPlateau(optimizer, patience=patience - 1, threshold=0.0, threshold_mode="abs")

    _, lowest = plateau()
    for network in candidates:
        optimizer, own = plateau()
        for epoch in range(1, most_epochs + 1):
            network, before = train_once(network), lowest.best
            loss = validate(network)
            lowest.step(loss)
            own.step(loss)
            if lowest.best != before:
                chosen = network, epoch
            if optimizer.param_groups[0]["lr"] < 1:
                break
    return *chosen, test(chosen[0])
""",
}
NOT_IN_FRAMEWORKS = {
    "unmask_softmax": "what to ask eight programs is no function of anybody's",
    "feedforward": "a product and a sum are torch's for the reference too",
}
