"""Wrong answers to lab 04, each with the checks it must fail and the words that name its mistake.

`backprop` and `train` call the student's own earlier functions, so a mistake in one of those fails their checks too:
`fails` names these as `exercise.check`.
"""

import torch

from autograder.authoring import wrong
from hpcdl.nn.mlp import sigma, sigma_prime

BACKPROP = tuple(
    f"backprop.{check}" for check in ("one_row", "the_mean_of_a_batch", "any_depth_and_width", "no_loop_over_samples")
)
TRAIN = tuple(
    f"train.{check}"
    for check in (
        "one_step",
        "the_short_last_batch",
        "a_new_order_each_epoch",
        "leaves_the_start_alone",
        "reads_digits",
    )
)
FORWARD = ("every_layer", "a_batch_at_once")


@wrong("backprop.feedforward", "no bias", fails=(*FORWARD, *BACKPROP, *TRAIN), says="The bias is missing")
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W in weights:
        zs.append(activations[-1] @ W.T)
        activations.append(sigma(zs[-1]))
    return zs, activations


@wrong("backprop.feedforward", "no activation function", fails=(*FORWARD, *BACKPROP, *TRAIN), says="σ is missing here")
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        zs.append(activations[-1] @ W.T + b)
        activations.append(zs[-1])
    return zs, activations


@wrong(
    "backprop.feedforward",
    "zs hold activations",
    fails=(*FORWARD, *BACKPROP, *TRAIN),
    says="zs takes z as it is before σ",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        activations.append(sigma(activations[-1] @ W.T + b))
        zs.append(activations[-1])
    return zs, activations


@wrong(
    "backprop.feedforward",
    "the input is left out of activations",
    fails=("two_lists_from_layer_to_layer", *FORWARD, "leaves_the_network_alone", *BACKPROP, *TRAIN),
    says="activations has 1 items, expected 2",
)
def feedforward(weights, biases, x):
    zs, activations = [], []
    for W, b in zip(weights, biases, strict=True):
        zs.append(x @ W.T + b)
        x = sigma(zs[-1])
        activations.append(x)
    return zs, activations


@wrong(
    "backprop.feedforward",
    "the next layer takes z, not a",
    fails=(*FORWARD, *BACKPROP, *TRAIN),
    says="fed with z of the layer before",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        x = x @ W.T + b
        zs.append(x)
        activations.append(sigma(x))
    return zs, activations


@wrong(
    "backprop.feedforward",
    "writes into the biases",
    fails="leaves_the_network_alone",
    says="changed its argument biases[0]",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        b += activations[-1] @ W.T if activations[-1].dim() == 1 else 0
        zs.append(b if activations[-1].dim() == 1 else activations[-1] @ W.T + b)
        activations.append(sigma(zs[-1]))
    return zs, activations


@wrong(
    "backprop.feedforward",
    "W @ x for a batch too",
    fails=("a_batch_at_once", *BACKPROP, "backprop.leaves_parameters_alone", *TRAIN),
    says="so write X @ W.T + b",
)
def feedforward(weights, biases, x):
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        zs.append(W @ activations[-1] + b)
        activations.append(sigma(zs[-1]))
    return zs, activations


OUTPUT = ("error_of_the_output", "error_of_a_batch", "error_far_out")


@wrong("backprop.output_error", "forgets σ'", fails=(*OUTPUT, *BACKPROP), says="σ'(z) is missing")
def output_error(a, y, z):
    return a - y


@wrong("backprop.output_error", "y − a for a − y", fails=(*OUTPUT, *BACKPROP), says="The sign is turned round")
def output_error(a, y, z):
    return (y - a) * sigma_prime(z)


@wrong("backprop.output_error", "σ for σ'", fails=(*OUTPUT, *BACKPROP), says="in place of its derivative")
def output_error(a, y, z):
    return (a - y) * sigma(z)


@wrong("backprop.output_error", "factor 2", fails=(*OUTPUT, *BACKPROP), says="A factor 2 too much")
def output_error(a, y, z):
    return 2 * (a - y) * sigma_prime(z)


@wrong("backprop.output_error", "σ' overflows", fails="error_far_out", says="exp(z) alone overflows")
def output_error(a, y, z):
    return (a - y) * torch.exp(z) / (1 + torch.exp(z)) ** 2


BACK = ("one_layer_back", "a_batch_one_layer_back", "all_the_way_back")


@wrong("backprop.backpropagate_error", "forgets σ'", fails=(*BACK, *BACKPROP, *TRAIN), says="multiply by the slope")
def backpropagate_error(delta, w_next, z):
    return delta @ w_next


@wrong("backprop.backpropagate_error", "σ for σ'", fails=(*BACK, *BACKPROP, *TRAIN), says="σ(z) in place of σ'(z)")
def backpropagate_error(delta, w_next, z):
    return (delta @ w_next) * sigma(z)


@wrong(
    "backprop.backpropagate_error",
    "not transposed",
    fails=(*BACK, *BACKPROP, "backprop.leaves_parameters_alone", *TRAIN),
    says="W is not transposed",
)
def backpropagate_error(delta, w_next, z):
    return (delta @ w_next.T) * sigma_prime(z)


@wrong(
    "backprop.gradients",
    "transposed outer product",
    fails=("outer_products", "square_layers"),
    says="The outer product is transposed",
)
def gradients(deltas, activations):
    weight_grads = [torch.outer(a, delta) for delta, a in zip(deltas, activations[:-1], strict=True)]
    return weight_grads, list(deltas)


@wrong(
    "backprop.gradients",
    "the layer's own activation",
    fails=("outer_products", "square_layers"),
    says="uses the layer's own a",
)
def gradients(deltas, activations):
    return [torch.outer(delta, a) for delta, a in zip(deltas, activations[1:], strict=True)], list(deltas)


@wrong(
    "backprop.gradients",
    "bias gradients forgotten",
    fails=("outer_products", "square_layers", "bias_gradients"),
    says="expected (weight_grads, bias_grads), two lists",
)
def gradients(deltas, activations):
    return [torch.outer(delta, a) for delta, a in zip(deltas, activations[:-1], strict=True)]


MEAN = ("the_mean_of_a_batch", "any_depth_and_width", "no_loop_over_samples")


@wrong("backprop.backprop", "sum for mean", fails=MEAN, says="divide by N = len(X)")
def backprop(weights, biases, X, Y):
    zs, activations = feedforward(weights, biases, X)
    delta = output_error(activations[-1], Y, zs[-1])
    weight_grads, bias_grads = [], []
    for i in range(len(weights) - 1, -1, -1):
        weight_grads.insert(0, delta.T @ activations[i])
        bias_grads.insert(0, delta.sum(dim=0))
        if i > 0:
            delta = backpropagate_error(delta, weights[i], zs[i - 1])
    return weight_grads, bias_grads


@wrong("backprop.backprop", "biases summed, weights averaged", fails=MEAN, says="divide by N = len(X)")
def backprop(weights, biases, X, Y):
    zs, activations = feedforward(weights, biases, X)
    delta = output_error(activations[-1], Y, zs[-1])
    weight_grads, bias_grads = [], []
    for i in range(len(weights) - 1, -1, -1):
        weight_grads.insert(0, delta.T @ activations[i] / len(X))
        bias_grads.insert(0, delta.sum(dim=0))
        if i > 0:
            delta = backpropagate_error(delta, weights[i], zs[i - 1])
    return weight_grads, bias_grads


@wrong(
    "backprop.backprop",
    "σ' forgotten in the last layer only",
    fails=("one_row", *MEAN),
    says="missing in the error of the last layer",
)
def backprop(weights, biases, X, Y):
    zs, activations = feedforward(weights, biases, X)
    delta = activations[-1] - Y
    weight_grads, bias_grads = [], []
    for i in range(len(weights) - 1, -1, -1):
        weight_grads.insert(0, delta.T @ activations[i] / len(X))
        bias_grads.insert(0, delta.mean(dim=0))
        if i > 0:
            delta = backpropagate_error(delta, weights[i], zs[i - 1])
    return weight_grads, bias_grads


@wrong(
    "backprop.backprop",
    "σ' forgotten in the hidden layers",
    fails=("one_row", *MEAN),
    says="missing in the errors of the hidden layers",
)
def backprop(weights, biases, X, Y):
    zs, activations = feedforward(weights, biases, X)
    delta = output_error(activations[-1], Y, zs[-1])
    weight_grads, bias_grads = [], []
    for i in range(len(weights) - 1, -1, -1):
        weight_grads.insert(0, delta.T @ activations[i] / len(X))
        bias_grads.insert(0, delta.mean(dim=0))
        delta = delta @ weights[i]
    return weight_grads, bias_grads


@wrong(
    "backprop.backprop",
    "gradients in backward order",
    fails=("one_row", *MEAN),
    says="from the last layer to the first",
)
def backprop(weights, biases, X, Y):
    zs, activations = feedforward(weights, biases, X)
    delta = output_error(activations[-1], Y, zs[-1])
    weight_grads, bias_grads = [], []
    for i in range(len(weights) - 1, -1, -1):
        weight_grads.append(delta.T @ activations[i] / len(X))
        bias_grads.append(delta.mean(dim=0))
        if i > 0:
            delta = backpropagate_error(delta, weights[i], zs[i - 1])
    return weight_grads, bias_grads


@wrong("backprop.backprop", "a loop over samples", fails="no_loop_over_samples", says="goes through them one by one")
def backprop(weights, biases, X, Y):
    weight_sums = [torch.zeros_like(W) for W in weights]
    bias_sums = [torch.zeros_like(b) for b in biases]
    for x, y in zip(X, Y, strict=True):
        zs, activations = feedforward(weights, biases, x)
        deltas = [output_error(activations[-1], y, zs[-1])]
        for i in range(len(weights) - 1, 0, -1):
            deltas.insert(0, backpropagate_error(deltas[0], weights[i], zs[i - 1]))
        weight_grads, bias_grads = gradients(deltas, activations)
        for total, part in zip([*weight_sums, *bias_sums], [*weight_grads, *bias_grads], strict=True):
            total += part / len(X)
    return weight_sums, bias_sums


@wrong(
    "backprop.backward",
    "overwrites for accumulates",
    fails=(
        "a_reused_node_accumulates",
        "the_root_and_what_lies_between",
        "a_node_waits_for_its_children",
        "each_node_once",
        "a_second_sweep",
    ),
    says="The last path overwrote the others",
)
def backward(value):
    nodes, waiting = {value}, [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in nodes:
                nodes.add(parent)
                waiting.append(parent)
    value.grad = 1.0
    for node in sorted(nodes, key=lambda node: -node.index):
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad = slope * node.grad


@wrong("backprop.backward", "recursion", fails="a_long_chain", says="recursion")
def backward(value):
    nodes = set()

    def visit(node):
        if node not in nodes:
            nodes.add(node)
            for parent in node.parents:
                visit(parent)

    visit(value)
    for node in nodes:
        node.grad = 0.0
    value.grad = 1.0
    for node in sorted(nodes, key=lambda node: -node.index):
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * node.grad


@wrong(
    "backprop.backward", "once for each path", fails=("each_node_once", "a_second_sweep"), says="did not finish within"
)
def backward(value):
    value.grad, waiting = 1.0, [(value, 1.0)]
    while waiting:
        node, passed = waiting.pop()
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * passed
            waiting.append((parent, slope * passed))


@wrong(
    "backprop.backward",
    "passes on before all paths have arrived",
    fails="a_node_waits_for_its_children",
    says="u passed on before all paths to it had arrived",
)
def backward(value):
    nodes, waiting = {value}, [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in nodes:
                nodes.add(parent)
                waiting.append(parent)
    for node in nodes:
        node.grad = 0.0
    value.grad, seen, waiting = 1.0, {value}, [value]
    while waiting:
        node = waiting.pop(0)
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * node.grad
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)


@wrong("backprop.backward", "adds to the sweep before", fails="a_second_sweep", says="the sweep added to the first one")
def backward(value):
    nodes, waiting = {value}, [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in nodes:
                nodes.add(parent)
                waiting.append(parent)
    value.grad = 1.0
    for node in sorted(nodes, key=lambda node: -node.index):
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * node.grad


@wrong(
    "backprop.softmax_cross_entropy",
    "unstable softmax",
    fails="huge_logits",
    says="Subtract each row's maximum first",
)
def softmax_cross_entropy(logits, labels):
    rows = torch.arange(len(labels))
    p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    loss = -p[rows, labels].log().mean()
    p[rows, labels] -= 1
    return loss, p / len(labels)


@wrong(
    "backprop.softmax_cross_entropy",
    "sum for mean",
    fails=("mean_loss", "gradient_of_the_loss", "huge_logits", *TRAIN),
    says="This is the sum over the 4 samples",
)
def softmax_cross_entropy(logits, labels):
    log_p = torch.log_softmax(logits, dim=1)
    rows = torch.arange(len(labels))
    dlogits = log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].sum(), dlogits


@wrong(
    "backprop.softmax_cross_entropy",
    "gradient not divided by N",
    fails=("gradient_of_the_loss", "huge_logits", *TRAIN),
    says="The loss is a mean: divide",
)
def softmax_cross_entropy(logits, labels):
    log_p = torch.log_softmax(logits, dim=1)
    rows = torch.arange(len(labels))
    dlogits = log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].mean(), dlogits


@wrong(
    "backprop.softmax_cross_entropy",
    "one-hot forgotten",
    fails=("gradient_of_the_loss", "rows_sum_to_zero", "huge_logits", *TRAIN),
    says="one-hot vector of the label is missing",
)
def softmax_cross_entropy(logits, labels):
    log_p = torch.log_softmax(logits, dim=1)
    rows = torch.arange(len(labels))
    return -log_p[rows, labels].mean(), log_p.exp() / len(labels)


@wrong(
    "backprop.softmax_cross_entropy",
    "softmax over the samples",
    fails=("mean_loss", "gradient_of_the_loss", "rows_sum_to_zero", "huge_logits", *TRAIN),
    says="use dim=1",
)
def softmax_cross_entropy(logits, labels):
    log_p = torch.log_softmax(logits, dim=0)
    rows = torch.arange(len(labels))
    dlogits = log_p.exp()
    dlogits[rows, labels] -= 1
    return -log_p[rows, labels].mean(), dlogits / len(labels)


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
