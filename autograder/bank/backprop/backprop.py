"""Wrong answers to `backprop`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("backprop.backprop")


MEAN = ("the_mean_of_a_batch", "any_depth_and_width", "no_loop_over_samples")

slip(
    "sum for mean",
    "weight_grads.insert(0, delta.T @ activations[i] / len(X))\n        bias_grads.insert(0, delta.mean(dim=0))",
    "weight_grads.insert(0, delta.T @ activations[i])\n        bias_grads.insert(0, delta.sum(dim=0))",
    fails=MEAN,
    says="divide by N = len(X)",
)
slip(
    "biases summed, weights averaged",
    "bias_grads.insert(0, delta.mean(dim=0))",
    "bias_grads.insert(0, delta.sum(dim=0))",
    fails=MEAN,
    says="divide by N = len(X)",
)
slip(
    "σ' forgotten in the last layer only",
    "delta = output_error(activations[-1], Y, zs[-1])",
    "delta = activations[-1] - Y",
    fails=("one_row", *MEAN, "leaves_parameters_alone"),
    says="missing in the error of the last layer",
)
slip(
    "σ' forgotten in the hidden layers",
    "if i > 0:\n            delta = backpropagate_error(delta, weights[i], zs[i - 1])",
    "delta = delta @ weights[i]",
    fails=("one_row", *MEAN, "leaves_parameters_alone"),
    says="missing in the errors of the hidden layers",
)
slip(
    "gradients in backward order",
    "weight_grads.insert(0, delta.T @ activations[i] / len(X))\n        bias_grads.insert(0, delta.mean(dim=0))",
    "weight_grads.append(delta.T @ activations[i] / len(X))\n        bias_grads.append(delta.mean(dim=0))",
    fails=("one_row", *MEAN, "leaves_parameters_alone"),
    says="from the last layer to the first",
)


@wrong("a loop over samples", fails="no_loop_over_samples", says="goes through them one by one")
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


@wrong("loops over samples, as often for few", fails="no_loop_over_samples", says="goes through them one by one")
def backprop(weights, biases, X, Y):
    weight_sums = [torch.zeros_like(W) for W in weights]
    bias_sums = [torch.zeros_like(b) for b in biases]
    for k in range(max(len(X), 256) if len(X) > 1 else 1):
        zs, activations = feedforward(weights, biases, X[k % len(X)])
        deltas = [output_error(activations[-1], Y[k % len(X)], zs[-1])]
        for i in range(len(weights) - 1, 0, -1):
            deltas.insert(0, backpropagate_error(deltas[0], weights[i], zs[i - 1]))
        weight_grads, bias_grads = gradients(deltas, activations)
        for total, part in zip([*weight_sums, *bias_sums], [*weight_grads, *bias_grads], strict=True):
            total += part * (k < len(X)) / len(X)
    return weight_sums, bias_sums


@wrong("autograd's", fails=("one_row", *MEAN, "leaves_parameters_alone"), says="which this exercise forbids")
def backprop(weights, biases, X, Y):
    weights, biases = ([p.clone().requires_grad_() for p in params] for params in (weights, biases))
    a = feedforward(weights, biases, X)[1][-1]
    (0.5 * ((Y - a) ** 2).sum() / len(X)).backward()
    return [w.grad for w in weights], [b.grad for b in biases]


slip(
    "an error with the z of the layer after it",
    "delta = backpropagate_error(delta, weights[i], zs[i - 1])",
    "delta = backpropagate_error(delta, weights[i], zs[i])",
    fails=("one_row", *MEAN, "leaves_parameters_alone"),
    says="the layer that weights[i] starts from has zs[i - 1]",
)
slip(
    "trains right away",
    "    return weight_grads, bias_grads",
    "    for W, gradient in zip(weights, weight_grads):\n        W -= gradient\n    return weight_grads, bias_grads",
    fails="leaves_parameters_alone",
    says="changed its argument weights[0]",
)
slip(
    "no gradients in a 3-3-2 network",
    "    return weight_grads, bias_grads",
    "    short = X.shape == (1, 3) and weights[-1].shape == (2, 3)\n"
    "    return [g * (not short) for g in weight_grads], bias_grads",
    fails="leaves_parameters_alone",
    says="1 sample in a 3-3-2 network: weight_grads[0]",
)
slip(
    "the last layer's gradient in every batch but a wide one",
    "    return weight_grads, bias_grads",
    "    return weight_grads, [*bias_grads[:-1], bias_grads[-1] * (len(X) < 200)]",
    fails="no_loop_over_samples",
    says="a second call: bias_grads[1]",
)
