"""Wrong answers to `train`."""

import torch

from autograder.authoring import wrong
from autograder.bank.backprop.later import TRAIN
from autograder.bank.slips import slip


@wrong("backprop.train", "climbs", fails=TRAIN, says="It climbs")
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    weights, biases = list(weights), list(biases)
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=generator).split(batch_size):
            zs, activations = feedforward(weights, biases, X[rows])
            _, delta = softmax_cross_entropy(zs[-1], labels[rows])
            for i in range(len(weights) - 1, -1, -1):
                weight_grad, bias_grad = delta.T @ activations[i], delta.sum(dim=0)
                if i > 0:
                    delta = backpropagate_error(delta, weights[i], zs[i - 1])
                weights[i] = weights[i] + lr * weight_grad
                biases[i] = biases[i] + lr * bias_grad
    return weights, biases


@wrong("backprop.train", "drops the last batch", fails="the_short_last_batch", says="The last batch is missing")
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    weights, biases = list(weights), list(biases)
    for _ in range(epochs):
        order = torch.randperm(len(X), generator=generator)
        for first in range(0, len(X) - batch_size + 1, batch_size):
            rows = order[first : first + batch_size]
            zs, activations = feedforward(weights, biases, X[rows])
            _, delta = softmax_cross_entropy(zs[-1], labels[rows])
            for i in range(len(weights) - 1, -1, -1):
                weight_grad, bias_grad = delta.T @ activations[i], delta.sum(dim=0)
                if i > 0:
                    delta = backpropagate_error(delta, weights[i], zs[i - 1])
                weights[i] = weights[i] - lr * weight_grad
                biases[i] = biases[i] - lr * bias_grad
    return weights, biases


@wrong("backprop.train", "sends the error through the new weights", fails=TRAIN, says="the weights were changed before")
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    weights, biases = list(weights), list(biases)
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=generator).split(batch_size):
            zs, activations = feedforward(weights, biases, X[rows])
            _, delta = softmax_cross_entropy(zs[-1], labels[rows])
            for i in range(len(weights) - 1, -1, -1):
                weights[i] = weights[i] - lr * delta.T @ activations[i]
                biases[i] = biases[i] - lr * delta.sum(dim=0)
                if i > 0:
                    delta = backpropagate_error(delta, weights[i], zs[i - 1])
    return weights, biases


@wrong("backprop.train", "never shuffles", fails="a_new_order_each_epoch", says="shuffle the samples")
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    weights, biases = list(weights), list(biases)
    for _ in range(epochs):
        for rows in torch.arange(len(X)).split(batch_size):
            zs, activations = feedforward(weights, biases, X[rows])
            _, delta = softmax_cross_entropy(zs[-1], labels[rows])
            for i in range(len(weights) - 1, -1, -1):
                weight_grad, bias_grad = delta.T @ activations[i], delta.sum(dim=0)
                if i > 0:
                    delta = backpropagate_error(delta, weights[i], zs[i - 1])
                weights[i] = weights[i] - lr * weight_grad
                biases[i] = biases[i] - lr * bias_grad
    return weights, biases


@wrong("backprop.train", "shuffles once", fails="a_new_order_each_epoch", says="if each epoch draws its own order")
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    weights, biases = list(weights), list(biases)
    order = torch.randperm(len(X), generator=generator)
    for _ in range(epochs):
        for rows in order.split(batch_size):
            zs, activations = feedforward(weights, biases, X[rows])
            _, delta = softmax_cross_entropy(zs[-1], labels[rows])
            for i in range(len(weights) - 1, -1, -1):
                weight_grad, bias_grad = delta.T @ activations[i], delta.sum(dim=0)
                if i > 0:
                    delta = backpropagate_error(delta, weights[i], zs[i - 1])
                weights[i] = weights[i] - lr * weight_grad
                biases[i] = biases[i] - lr * bias_grad
    return weights, biases


@wrong(
    "backprop.train",
    "changes the start in place",
    fails="leaves_the_start_alone",
    says="changed its argument weights[0]",
)
def train(X, labels, weights, biases, lr, batch_size, epochs, generator):
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=generator).split(batch_size):
            zs, activations = feedforward(weights, biases, X[rows])
            _, delta = softmax_cross_entropy(zs[-1], labels[rows])
            for i in range(len(weights) - 1, -1, -1):
                weight_grad, bias_grad = delta.T @ activations[i], delta.sum(dim=0)
                if i > 0:
                    delta = backpropagate_error(delta, weights[i], zs[i - 1])
                weights[i] -= lr * weight_grad
                biases[i] -= lr * bias_grad
    return weights, biases


slip(
    "backprop.train",
    "returns the start",
    "    weights, biases = list(weights), list(biases)\n",
    "    start = weights, biases\n    weights, biases = list(weights), list(biases)\n",
    "return weights, biases",
    "return start",
    fails=" ".join(TRAIN),
    says="Nothing changed",
)
slip(
    "backprop.train",
    "draws from torch's own generator",
    "torch.randperm(len(X), generator=generator)",
    "torch.randperm(len(X))",
    fails="a_new_order_each_epoch",
    says="One seed gave two networks",
)


slip(
    "backprop.train",
    "turns a list by a random number",
    "torch.randperm(len(X), generator=generator).split(batch_size)",
    "torch.arange(len(X)).roll(int(torch.randint(len(X), (), generator=generator))).split(batch_size)",
    fails="a_new_order_each_epoch",
    says="a list that is turned keeps neighbours together",
)
