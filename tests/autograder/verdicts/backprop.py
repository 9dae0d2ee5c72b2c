"""Answers to exercises of lab `backprop` whose verdict was wrong once: see `test_verdicts`."""


# %% output_error: in place -> error_of_a_batch
def output_error(a, y, z):
    a.sub_(y)
    s = torch.sigmoid(z)
    return a * s * (1 - s)


# %% backpropagate_error: in place delta -> a_batch_one_layer_back
def backpropagate_error(delta, w_next, z):
    s = torch.sigmoid(z)
    out = (delta @ w_next) * s * (1 - s)
    delta.zero_()
    return out


# %% softmax_cross_entropy: changes logits -> rows_sum_to_zero
def softmax_cross_entropy(logits, labels):
    logits -= logits.amax(1, keepdim=True)
    logp = logits - logits.exp().sum(1, keepdim=True).log()
    N = len(labels)
    d = logp.exp()
    d[torch.arange(N), labels] -= 1
    return -logp[torch.arange(N), labels].mean(), d / N


# %% train: chunk -> the_short_last_batch
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    W, b = list(weights), list(biases)
    for _ in range(epochs):
        for idx in torch.randperm(X.shape[0], generator=generator).chunk(-(-len(X) // batch_size)):
            zs, acts = feedforward(W, b, X[idx])
            _, d = softmax_cross_entropy(zs[-1], labels[idx])
            new_W, new_b = list(W), list(b)
            for k in range(len(W) - 1, -1, -1):
                new_W[k] = W[k] - lr * (d.T @ acts[k])
                new_b[k] = b[k] - lr * d.sum(0)
                if k > 0:
                    d = backpropagate_error(d, W[k], zs[k - 1])
            W, b = new_W, new_b
    return W, b


# %% train: shuffles blocks -> a_new_order_each_epoch
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    W, b = list(weights), list(biases)
    for _ in range(epochs):
        parts = torch.arange(len(X)).split(batch_size)
        for i in torch.randperm(len(parts), generator=generator).tolist():
            idx = parts[i]
            zs, acts = feedforward(W, b, X[idx])
            _, d = softmax_cross_entropy(zs[-1], labels[idx])
            new_W, new_b = list(W), list(b)
            for k in range(len(W) - 1, -1, -1):
                new_W[k] = W[k] - lr * (d.T @ acts[k])
                new_b[k] = b[k] - lr * d.sum(0)
                if k > 0:
                    d = backpropagate_error(d, W[k], zs[k - 1])
            W, b = new_W, new_b
    return W, b


# %% backprop: numpy -> full points
import numpy as np


def backprop(weights, biases, X, Y):
    activations = [X.numpy()]
    for W, b in zip(weights, biases):
        z = activations[-1] @ W.numpy().T + b.numpy()
        activations.append((1 / (1 + np.exp(-z))).astype(z.dtype))
    delta, weight_grads, bias_grads = activations[-1] - Y.numpy(), [], []
    for W, a, below in zip(reversed(weights), activations[:0:-1], activations[-2::-1]):
        delta = delta * a * (1 - a)
        weight_grads.insert(0, torch.from_numpy(delta.T @ below / len(X)))
        bias_grads.insert(0, torch.from_numpy(delta.mean(axis=0)))
        delta = delta @ W.numpy()
    return weight_grads, bias_grads


# %% backprop: lists of floats -> no_loop_over_samples
def backprop(weights, biases, X, Y):
    zs, activations = feedforward(weights, biases, X)
    delta, weight_grads, bias_grads = output_error(activations[-1], Y, zs[-1]), [], []
    for i in reversed(range(len(weights))):
        rows = list(zip(delta.tolist(), activations[i].tolist()))
        sums = [[sum(d[j] * a[k] for d, a in rows) for k in range(len(rows[0][1]))] for j in range(len(rows[0][0]))]
        weight_grads.insert(0, torch.tensor(sums, dtype=X.dtype) / len(X))
        bias_grads.insert(0, delta.mean(dim=0))
        if i:
            delta = backpropagate_error(delta, weights[i], zs[i - 1])
    return weight_grads, bias_grads


# %% backprop: loop in map -> no_loop_over_samples
def backprop(weights, biases, X, Y):
    zs, activations = feedforward(weights, biases, X)
    delta, weight_grads, bias_grads = output_error(activations[-1], Y, zs[-1]), [], []
    for i in reversed(range(len(weights))):
        weight_grads.insert(0, sum(map(torch.outer, delta, activations[i])) / len(X))
        bias_grads.insert(0, delta.mean(dim=0))
        if i:
            delta = backpropagate_error(delta, weights[i], zs[i - 1])
    return weight_grads, bias_grads
