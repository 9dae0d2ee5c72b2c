"""Lab 04 answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% feedforward: functional.linear's formula with einsum
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for layer in range(len(weights)):
        z = torch.einsum("...n,mn->...m", activations[layer], weights[layer]) + biases[layer]
        zs.append(z)
        activations.append(sigma(z))
    return zs, activations


# %% feedforward: the logistic function written out
def logistic(z):
    return 1 / (1 + torch.exp(-z))


def feedforward(weights, biases, x):
    zs = []
    activations = [x]
    a = x
    for W, b in zip(weights, biases):
        zs.append(torch.matmul(a, W.t()) + b)
        activations.append(a := logistic(zs[-1]))
    return zs, activations


# %% feedforward: recursion over the layers
def feedforward(weights, biases, x):
    if not weights:
        return [], [x]
    z = x @ weights[0].T + biases[0]
    zs, activations = feedforward(weights[1:], biases[1:], sigma(z))
    return [z, *zs], [x, *activations]


# %% feedforward: samples one at a time
def feedforward(weights, biases, x):
    if x.dim() == 2:
        runs = [feedforward(weights, biases, row) for row in x]
        layers = range(len(weights))
        zs = [torch.stack([run[0][i] for run in runs]) for i in layers]
        return zs, [x, *(torch.stack([run[1][i + 1] for run in runs]) for i in layers)]
    zs, activations = [], [x]
    for W, b in zip(weights, biases):
        zs.append(torch.stack([row.dot(activations[-1]) + bias for row, bias in zip(W, b)]))
        activations.append(torch.sigmoid(zs[-1]))
    return zs, activations


# %% output_error: the slope from the activation
def output_error(a, y, z):
    return (a - y) * a * (1 - a)


# %% output_error: the slope from sigma, which the notebook gives too
def output_error(a, y, z):
    s = sigma(z)
    return torch.mul(s * (1 - s), a - y)


# %% output_error: in place on a copy
def output_error(a, y, z):
    delta = a.clone()
    delta -= y
    delta *= sigma_prime(z)
    return delta


# %% backpropagate_error: einsum
def backpropagate_error(delta, w_next, z):
    return torch.einsum("...j,jk->...k", delta, w_next).mul(sigma_prime(z))


# %% backpropagate_error: the lecture's transpose, turned back
def backpropagate_error(delta, w_next, z):
    back = w_next.T @ delta.T
    return back.T * sigma_prime(z) if delta.dim() == 2 else back * sigma_prime(z)


# %% backpropagate_error: a loop over paths
def backpropagate_error(delta, w_next, z):
    error = torch.zeros_like(z)
    for j, row in enumerate(w_next):
        error += delta[..., j : j + 1] * row
    s = 1 / (1 + torch.exp(-z))
    return error * s * (1 - s)


# %% gradients: columns times rows
def gradients(deltas, activations):
    weight_grads = [delta[:, None] * a[None, :] for delta, a in zip(deltas, activations)]
    return weight_grads, list(deltas)


# %% gradients: einsum, by number of the layer
def gradients(deltas, activations):
    weight_grads, bias_grads = [], []
    for l in range(len(deltas)):
        weight_grads.append(torch.einsum("j,k->jk", deltas[l], activations[l]))
        bias_grads.append(1.0 * deltas[l])
    return weight_grads, bias_grads


# %% gradients: number by number
def gradients(deltas, activations):
    grads = []
    for d, a in zip(deltas, activations):
        g = torch.empty(len(d), len(a), dtype=d.dtype)
        for j in range(len(d)):
            for k in range(len(a)):
                g[j, k] = d[j] * a[k]
        grads.append(g)
    return grads, [d.detach() for d in deltas]


# %% backprop: lists that are turned round
def backprop(weights, biases, X, Y):
    zs, activations = feedforward(weights, biases, X)
    n = X.shape[0]
    deltas = [output_error(activations[-1], Y, zs[-1]) / n]
    for W, z in zip(reversed(weights[1:]), reversed(zs[:-1])):
        deltas.append(backpropagate_error(deltas[-1], W, z))
    deltas.reverse()
    return [d.T @ a for d, a in zip(deltas, activations)], [d.sum(0) for d in deltas]


# %% backprop: everything in one function, with einsum
def backprop(weights, biases, X, Y):
    a = [X]
    for W, b in zip(weights, biases):
        a.append(sigma(torch.einsum("ni,oi->no", a[-1], W) + b))
    delta = (a[-1] - Y) * a[-1] * (1 - a[-1])
    weight_grads, bias_grads = [None] * len(weights), [None] * len(biases)
    for l in reversed(range(len(weights))):
        weight_grads[l] = torch.einsum("no,ni->oi", delta, a[l]).div(len(X))
        bias_grads[l] = torch.einsum("no->o", delta).div(len(X))
        delta = torch.einsum("no,oi->ni", delta, weights[l]) * a[l] * (1 - a[l])
    return weight_grads, bias_grads


# %% backprop: in a thread of its own
import threading


def backprop(weights, biases, X, Y):
    grads = [], []

    def work():
        zs, activations = feedforward(weights, biases, X)
        delta = output_error(activations[-1], Y, zs[-1])
        for i in reversed(range(len(weights))):
            grads[0].insert(0, delta.T @ activations[i] / len(X))
            grads[1].insert(0, delta.mean(dim=0))
            delta = backpropagate_error(delta, weights[i], zs[i - 1]) if i else delta

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return grads


# %% backprop: recursion, forward on the way down and backward on the way up
def backprop(weights, biases, X, Y):
    weight_grads, bias_grads = [], []

    def visit(l, a):
        if l == len(weights):
            return a - Y
        out = sigma(a @ weights[l].T + biases[l])
        delta = visit(l + 1, out) * out * (1 - out)
        weight_grads.insert(0, (delta.T @ a) / len(X))
        bias_grads.insert(0, delta.mean(0))
        return delta @ weights[l]

    visit(0, X)
    return weight_grads, bias_grads


# %% backward: depth first with a stack of one's own
def backward(value):
    order, seen, stack = [], set(), [(value, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((parent, False) for parent in node.parents)
    for node in order:
        node.grad = 0.0
    value.grad = 1.0
    for node in reversed(order):
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += node.grad * slope


# %% backward: a heap by index
import heapq


def backward(value):
    heap, known = [(-value.index, value)], {value.index: value}
    value.grad = 1.0
    while heap:
        _, node = heapq.heappop(heap)
        for k in range(len(node.parents)):
            parent = node.parents[k]
            if parent.index not in known:
                known[parent.index] = parent
                parent.grad = 0.0
                heapq.heappush(heap, (-parent.index, parent))
            parent.grad += node.slopes[k] * node.grad


# %% backward: gradients in a dict, which are written at the end
from collections import deque


def backward(value):
    found, queue = [value], deque([value])
    known = {id(value)}
    while queue:
        for parent in queue.popleft().parents:
            if id(parent) not in known:
                known.add(id(parent))
                found.append(parent)
                queue.append(parent)
    found.sort(key=lambda node: -node.index)
    total = {id(node): 0.0 for node in found}
    total[id(value)] = 1.0
    for node in found:
        for parent, slope in zip(node.parents, node.slopes):
            total[id(parent)] += slope * total[id(node)]
    for node in found:
        node.grad = total[id(node)]


# %% softmax_cross_entropy: by logsumexp's definition, row by row
import math


def softmax_cross_entropy(logits, labels):
    loss, rows = 0.0, []
    for z, c in zip(logits, labels.tolist()):
        top = z.max()
        e = torch.exp(z - top)
        loss += top + e.sum().log() - z[c]
        p = e / e.sum()
        p[c] -= 1
        rows.append(p)
    return loss / len(logits), torch.stack(rows) / len(logits)


# %% softmax_cross_entropy: the truth as a matrix of ones and zeros
def softmax_cross_entropy(logits, labels):
    n, k = logits.shape
    truth = torch.eye(k, dtype=logits.dtype)[labels]
    z = logits - torch.amax(logits, 1, keepdim=True)
    e = z.exp()
    total = e.sum(1, keepdim=True)
    return ((total.log() - z) * truth).sum().item() / n, (e / total - truth) / n


# %% softmax_cross_entropy: gather and scatter
def softmax_cross_entropy(logits, labels):
    c = labels[:, None]
    z = logits - logits.max(-1)[0][:, None]
    log_sum = torch.log(torch.sum(torch.exp(z), -1, keepdim=True))
    loss = (log_sum - z.gather(1, c)).mean()
    p = torch.exp(z - log_sum)
    return loss, p.scatter_add(1, c, -torch.ones_like(c, dtype=p.dtype)) / len(labels)


# %% train: with the steps as a function of its own
def descend(tensors, grads, lr):
    return [tensor - lr * grad for tensor, grad in zip(tensors, grads)]


def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    for epoch in range(epochs):
        order = torch.randperm(X.shape[0], generator=generator)
        for start in range(0, X.shape[0], batch_size):
            batch = order[start : start + batch_size]
            zs, activations = feedforward(weights, biases, X[batch])
            loss, delta = softmax_cross_entropy(zs[-1], labels[batch])
            deltas = [delta]
            for W, z in zip(weights[:0:-1], zs[-2::-1]):
                deltas.insert(0, backpropagate_error(deltas[0], W, z))
            weights = descend(weights, [d.T @ a for d, a in zip(deltas, activations)], lr)
            biases = descend(biases, [d.sum(0) for d in deltas], lr)
    return weights, biases


# %% train: copies that are changed in place
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    weights, biases = [W.clone() for W in weights], [b.clone() for b in biases]
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(X), generator=generator), batch_size):
            a, zs = [X[rows]], []
            for i, (W, b) in enumerate(zip(weights, biases)):
                zs.append(torch.addmm(b, a[-1], W.T))
                a.append(sigma(zs[-1]) if i < len(weights) - 1 else zs[-1])
            delta = softmax_cross_entropy(zs[-1], labels[rows])[1]
            for i in reversed(range(len(weights))):
                before = delta @ weights[i] * sigma_prime(zs[i - 1]) if i else None
                weights[i].sub_(lr * (delta.T @ a[i]))
                biases[i].sub_(lr * delta.sum(0))
                delta = before
    return weights, biases


# %% train: a class that keeps the network
class Network:
    def __init__(self, weights, biases):
        self.weights, self.biases = list(weights), list(biases)

    def step(self, X, labels, lr):
        zs, activations = feedforward(self.weights, self.biases, X)
        loss, delta = softmax_cross_entropy(zs[-1], labels)
        new = []
        for l in range(len(zs) - 1, -1, -1):
            new.append((self.weights[l] - lr * delta.T @ activations[l], self.biases[l] - lr * delta.sum(0)))
            if l:
                delta = backpropagate_error(delta, self.weights[l], zs[l - 1])
        self.weights, self.biases = map(list, zip(*reversed(new)))
        return float(loss)


def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    network = Network(weights, biases)
    for epoch in range(1, epochs + 1):
        losses = [
            network.step(X[rows], labels[rows], lr)
            for rows in torch.randperm(len(X), generator=generator).split(batch_size)
        ]
        print(f"epoch {epoch}: {sum(losses) / len(losses):.3f}")
    return network.weights, network.biases


# %% unmask_softmax: one batch that has it all
def unmask_softmax():
    return [([[0, 1000, 0], [-1000, -1000, -1000.0], [1, 2, 3]], [0, 1, 2])]


# %% unmask_softmax: a name for each reason
def unmask_softmax():
    batch = ([[0.5, -0.5], [0.25, 1.5], [3.0, 1.0]], [1, 0, 1])
    overflow = ([[9999.0, 9999.0]], [0])
    apart = ([[0.0, 0.0], [-2000.0, -2000.0]], [0, 1])
    sure_and_wrong = ([[35.0, 0.0, 1.0]], [1])
    return [batch, overflow, apart, sure_and_wrong]


# %% stop_at: all networks of a candidate in a list, the best by min
def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    seen = []
    for number, network in enumerate(candidates):
        losses, waited = [], 0
        while len(losses) < most_epochs and waited < patience:
            network = train_once(network)
            losses.append(validate(network))
            waited = len(losses) - 1 - losses.index(min(losses))
            seen.append((losses[-1], number, len(losses), network))
    _, _, epoch, network = min(seen, key=lambda entry: entry[:3])
    return network, epoch, test(network)


# %% stop_at: a function for one candidate
def stopped(network, train_once, validate, patience, most_epochs):
    best, bad = None, 0
    for epoch in range(1, most_epochs + 1):
        network = train_once(network)
        value = validate(network)
        if best is None or value < best[0]:
            best, bad = (value, epoch, network), 0
        else:
            bad += 1
        if bad >= patience:
            return best
    return best


def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    ends = [stopped(network, train_once, validate, patience, most_epochs) for network in candidates]
    _, epoch, network = min(ends, key=lambda end: end[0])
    return [network, epoch, test(network)]


# %% stop_at: candidates trained in turns, a class for each
class Run:
    def __init__(self, network):
        self.network, self.epoch, self.low, self.waited = network, 0, float("inf"), 0

    def is_over(self, patience, most_epochs):
        return self.epoch == most_epochs or self.waited == patience

    def step(self, train_once, validate):
        self.network = train_once(self.network)
        self.epoch += 1
        loss = validate(self.network)
        if loss < self.low:
            self.low, self.best, self.at, self.waited = loss, self.network, self.epoch, 0
        else:
            self.waited += 1


def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    runs = [Run(network) for network in candidates]
    while going := [run for run in runs if not run.is_over(patience, most_epochs)]:
        for run in going:
            run.step(train_once, validate)
    winner = sorted(runs, key=lambda run: run.low)[0]
    return winner.best, winner.at, test(winner.best)


# %% stop_at: a generator of epochs, min with a key
import math


def epochs(network, train_once, validate, patience, most_epochs):
    lowest, since = math.inf, 0
    for epoch in range(1, most_epochs + 1):
        network = train_once(network)
        loss = validate(network)
        yield loss, epoch, network
        since = 0 if epoch == 1 or loss < lowest else since + 1
        lowest = loss if since == 0 else lowest
        if since >= patience:
            return


def stop_at(candidates, train_once, validate, test, patience, most_epochs):
    every = [row for first in candidates for row in epochs(first, train_once, validate, patience, most_epochs)]
    loss, epoch, network = min(every, key=lambda row: row[0])
    return network, epoch, test(network)
