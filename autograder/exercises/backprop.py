"""Lab 04, backprop: exercises and checks. The oracle of every gradient is torch's autograd in float64."""

import itertools
import math
import time

import torch
from torch.nn import functional

from autograder import checks, show
from autograder.authoring import Lab

lab = Lab("backprop", number=4, title="Errors flow backwards")

LAYERS = ("feedforward", "backpropagate_error", "gradients")  # whole networks are trained with these

feedforward = lab.exercise("feedforward", points=15, minutes=12)
output_error = lab.exercise("output_error", points=10, minutes=6)
backpropagate_error = lab.exercise("backpropagate_error", points=10, minutes=8)
gradients = lab.exercise("gradients", points=10, minutes=8)
backprop = lab.exercise("backprop", points=20, minutes=15, uses=("output_error", *LAYERS))
backward = lab.exercise("backward", points=15, minutes=15, functions=("backward", "Value"))
softmax = lab.exercise("softmax_cross_entropy", points=10, minutes=10)
train = lab.exercise("train", points=10, minutes=12, uses=("softmax_cross_entropy", *LAYERS))

F64 = torch.float64


# ------------------------------------------------------------------------------------ networks and oracles


def normal(rng, *shape, dtype=F64) -> torch.Tensor:
    return torch.randn(*shape, generator=rng, dtype=F64).to(dtype)


def network(rng, widths, dtype=F64):
    """Random `(weights, biases)` for layers of these widths; no bias is zero."""
    weights = [normal(rng, m, n, dtype=dtype) for n, m in itertools.pairwise(widths)]
    return weights, [normal(rng, m, dtype=dtype) for m in widths[1:]]


def copies(tensors: list) -> list:
    """For the student's function, which may write into what it is given: the oracle needs it as it was."""
    return [t.clone() for t in tensors]


def widths_text(widths) -> str:
    return f"a {'-'.join(map(str, widths))} network"


def run(weights, biases, x):
    """`(zs, activations)` by torch's own linear layers."""
    zs, activations = [], [x]
    for W, b in zip(weights, biases, strict=True):
        zs.append(functional.linear(activations[-1], W, b))
        activations.append(torch.sigmoid(zs[-1]))
    return zs, activations


def autograd(weights, biases, X, Y):
    """By autograd: `(dC/dW, dC/db, dC/dz)`, a list each, of the mean over rows of 1/2 |y - a|^2."""
    parameters = [p.double().clone().requires_grad_() for p in (*weights, *biases)]
    zs, activations = run(parameters[: len(weights)], parameters[len(weights) :], X.double())
    C = 0.5 * (Y.double() - activations[-1]).pow(2).sum(dim=-1).mean()
    grads = [g.to(X.dtype) for g in torch.autograd.grad(C, [*parameters, *zs])]
    return grads[: len(weights)], grads[len(weights) : 2 * len(weights)], grads[2 * len(weights) :]


def two_lists(got, call: str, names: tuple[str, str], lengths: tuple[int, int], why: str) -> None:
    """`got` is a pair of lists of these lengths."""
    wanted = f"({names[0]}, {names[1]}), two lists"
    checks.that(
        type(got) in (tuple, list) and len(got) == 2,
        f"{call} returned {show.an(show.type_name(got))}, expected {wanted}. End with `return {names[0]}, {names[1]}`.",
        got=got,
        expected=wanted,
    )
    for part, name, length in zip(got, names, lengths, strict=True):
        checks.that(
            type(part) in (list, tuple),
            f"{name} is {show.an(show.type_name(part))}, expected a list with a tensor for each layer.",
            got=part,
        )
        checks.that(
            len(part) == length, f"{name} has {len(part)} items, expected {length}.", got=part, expected=length, why=why
        )


# --------------------------------------------------------------------------------------------- feedforward

ONE_MORE = "L layers have L - 1 layers of weights, so L - 1 vectors z; but L vectors a, as the input is a¹."


@feedforward.check(points=3)
def two_lists_from_layer_to_layer(student, rng):
    "zs has one vector for each layer of weights, activations one more: the input is a¹."
    for widths in ((2, 2), (3, 3, 3, 3)):  # square: what a transposed W does is the next check's to say
        weights, biases = network(rng, widths)
        x = normal(rng, widths[0])
        got = student.feedforward(copies(weights), copies(biases), x.clone())
        n = len(weights)
        two_lists(got, "feedforward", ("zs", "activations"), (n, n + 1), f"In {widths_text(widths)}: {ONE_MORE}")
        checks.close(got[1][0], x, name="activations[0]", why="The first activation is the input itself, unchanged.")
        for i in range(n):
            checks.tensor(got[0][i], name=f"zs[{i}]", shape=(widths[i + 1],), dtype=F64)


def forward_mistakes(weights, biases, zs, activations, i):
    """Values of z in layer i that known mistakes give."""
    W, a, z = weights[i], activations[i], zs[i]
    raw = zs[i - 1] if i else None
    mistakes = {
        "The bias is missing: z = W a + b.": z - biases[i],
        "This is a = σ(z): zs takes z as it is before σ.": activations[i + 1],
        "The bias is added with the wrong sign.": z - 2 * biases[i],
    }
    if W.shape[0] == W.shape[1]:
        mistakes["W is transposed here: W[j, k] leads from neuron k to neuron j, so z = W @ a + b."] = (
            functional.linear(a, W.T) + biases[i]
        )
        if a.dim() == 2 and a.shape[0] == a.shape[1]:
            mistakes["This is W @ X + b, as for one sample: the samples of a batch are rows, so write X @ W.T + b."] = (
                W @ a + biases[i]
            )
    if i:
        mistakes["This layer was fed with z of the layer before: feed it a = σ(z)."] = functional.linear(
            raw, W, biases[i]
        )
    if i and len(activations[0]) == W.shape[1]:
        mistakes["Every layer was fed with the input x: feed it the activations of the layer before it."] = (
            functional.linear(activations[0], W, biases[i])
        )
    return mistakes


def check_forward(got, weights, biases, x):
    """Every z and every a, layer by layer, so that the first wrong one is named."""
    zs, activations = run(weights, biases, x)
    for i in range(len(weights)):
        mistakes = forward_mistakes(weights, biases, zs, activations, i)
        checks.close(got[0][i], zs[i], name=f"zs[{i}]", why=f"z of layer {i + 2} is W a + b.", mistakes=mistakes)
        checks.close(
            got[1][i + 1],
            activations[i + 1],
            name=f"activations[{i + 1}]",
            why=f"a = σ(z) = 1 / (1 + exp(-z)), elementwise, in layer {i + 2}, the last layer included.",
            mistakes={
                "This is z: σ is missing here.": zs[i],
                "This is tanh(z): the course's σ is 1 / (1 + exp(-z)).": torch.tanh(zs[i]),
                "This is ReLU: the course's σ is 1 / (1 + exp(-z)).": torch.relu(zs[i]),
                "The sign in the exponent is wrong: σ(z) = 1 / (1 + exp(-z)).": torch.sigmoid(-zs[i]),
            },
        )


@feedforward.check(points=6, needs="two_lists_from_layer_to_layer")
def every_layer(student, rng):
    "For one sample, every z = W a + b and every a = σ(z)."
    for widths in ((3, 3, 3), (1, 1), (2, 4, 1, 3), (5, 4, 3, 2, 2)):  # square first: no shape hides a transposed W
        weights, biases = network(rng, widths)
        x = normal(rng, widths[0])
        check_forward(student.feedforward(copies(weights), copies(biases), x.clone()), weights, biases, x)


@feedforward.check(points=4, needs="two_lists_from_layer_to_layer")
def a_batch_at_once(student, rng):
    "A batch (N, n) goes through as one: each row of the result belongs to one sample."
    for widths, N, dtype in (((3, 3), 3, F64), ((3, 2), 4, F64), ((4, 3, 5), 1, F64), ((6, 4, 2), 5, torch.float32)):
        weights, biases = network(rng, widths, dtype)
        X = normal(rng, N, widths[0], dtype=dtype)
        got = student.feedforward(copies(weights), copies(biases), X.clone())
        check_forward(got, weights, biases, X)


@feedforward.check(points=2, needs="two_lists_from_layer_to_layer")
def leaves_the_network_alone(student, rng):
    "Input, weights and biases are the same after the call."
    weights, biases = network(rng, (3, 3, 2))
    x, before = normal(rng, 3), [p.clone() for p in (*weights, *biases)]
    x_before = x.clone()
    student.feedforward(weights, biases, x)
    checks.unchanged(x, x_before, name="x")
    checks.equal((len(weights), len(biases)), (2, 2), name="(len(weights), len(biases)) after the call")
    for i in range(2):
        checks.unchanged(weights[i], before[i], name=f"weights[{i}]")
        checks.unchanged(biases[i], before[2 + i], name=f"biases[{i}]")


# -------------------------------------------------------------------------------------------- output_error


def slope(z: torch.Tensor) -> torch.Tensor:
    """σ'(z), by autograd."""
    z = z.clone().requires_grad_()
    return torch.autograd.grad(torch.sigmoid(z).sum(), z)[0]


def output_mistakes(a, y, z) -> dict:
    s = slope(z)
    return {
        "σ'(z) is missing: the error is with respect to z, so ∇ₐC = a − y goes on through the slope of σ.": a - y,
        "The sign is turned round: ∂C/∂a = a − y, in this order.": (y - a) * s,
        "You multiplied by σ(z) in place of its derivative σ'(z) = σ(z) (1 − σ(z)).": (a - y) * a,
        "A factor 2 too much: C has a factor ½, so ∂C/∂a = a − y.": 2 * (a - y) * s,
        "This squares the difference: ∂C/∂a of ½ (y − a)² is a − y.": (a - y) ** 2 * s,
        "σ' was taken at a: take it at z (or use a (1 − a), which is the same).": (a - y) * slope(a),
    }


def check_output(student, a, y, z):
    got = student.output_error(a.clone(), y.clone(), z.clone())
    why = "δᴸ = (a − y) ⊙ σ'(z), one number for each neuron."
    if type(got) in (float, int) or (type(got) is torch.Tensor and got.dim() == 0 and z.dim() > 0):
        checks.fail("You summed up: δᴸ has one entry for each neuron of the last layer.", got=got, why=why)
    expected = (a.double() - y.double()) * slope(z.double())
    checks.close(got, expected.to(z.dtype), name="output_error(a, y, z)", why=why, mistakes=output_mistakes(a, y, z))


@output_error.check(points=6)
def error_of_the_output(student, rng):
    "δᴸ is the derivative of C = ½ |y − a|² with respect to z."
    for n in (1, 3, 5):
        z, y = normal(rng, n), torch.rand(n, generator=rng, dtype=F64)
        check_output(student, torch.sigmoid(z), y, z)


@output_error.check(points=2)
def error_of_a_batch(student, rng):
    "It works elementwise: for a batch (N, n) as for one sample."
    for shape, dtype in (((4, 3), F64), ((1, 2), F64), ((7, 5), torch.float32)):
        z, y = normal(rng, *shape, dtype=dtype), torch.rand(*shape, generator=rng, dtype=F64).to(dtype)
        check_output(student, torch.sigmoid(z), y, z)


@output_error.check(points=2)
def error_far_out(student, rng):
    "At z = ±1000 the error is 0, not NaN."
    for dtype in (F64, torch.float32):
        z = torch.tensor([1000.0, -1000.0, 0.0], dtype=dtype)
        got = student.output_error(torch.sigmoid(z), torch.tensor([0.0, 1.0, 1.0], dtype=dtype), z)
        expected = torch.tensor([0.0, 0.0, -0.125], dtype=dtype)
        why = "Far from 0 the curve σ is flat, so σ' is 0. Write σ' as σ(z) (1 − σ(z)): exp(z) alone overflows."
        checks.close(got, expected, name="output_error(a, y, z) at z = [1000, -1000, 0]", why=why)


# ------------------------------------------------------------------------------------- backpropagate_error


def back_mistakes(delta, W, z) -> dict:
    back = delta @ W
    mistakes = {
        "σ'(z) is missing: multiply by the slope at this layer's z.": back,
        "You multiplied by σ(z) in place of σ'(z) = σ(z) (1 − σ(z)).": back * torch.sigmoid(z),
    }
    if W.shape[0] == W.shape[1]:
        mistakes |= {
            "W is not transposed: forward it is W a, backward Wᵀ δ.": delta @ W.T * slope(z),
            "W is not transposed, and σ'(z) is missing.": delta @ W.T,
            "The weights are missing: the error comes back through Wᵀ.": delta * slope(z),
        }
        if delta.dim() == 2 and len(delta) == len(W):
            mistakes["This is Wᵀ δ, as for one sample: the errors of a batch are rows, so write δ W."] = (
                W.T @ delta * slope(z)
            )
    return mistakes


def check_back(student, delta, W, z):
    got = student.backpropagate_error(delta.clone(), W.clone(), z.clone())
    expected = ((delta.double() @ W.double()) * slope(z.double())).to(z.dtype)
    checks.close(
        got,
        expected,
        name="backpropagate_error(delta, w_next, z)",
        why="δˡ = ((W^(l+1))ᵀ δ^(l+1)) ⊙ σ'(zˡ), of the shape of zˡ.",
        mistakes=back_mistakes(delta, W, z),
    )


@backpropagate_error.check(points=5)
def one_layer_back(student, rng):
    "The error of a layer, from the error of the next one."
    for n, m in ((3, 3), (3, 2), (2, 4), (1, 3)):  # square first: no shape hides a W that is not transposed
        check_back(student, normal(rng, m), normal(rng, m, n), normal(rng, n))


@backpropagate_error.check(points=3)
def a_batch_one_layer_back(student, rng):
    "A batch of errors (N, m) comes back as a batch (N, n)."
    for N, n, m in ((3, 3, 3), (5, 3, 2), (1, 2, 4)):
        check_back(student, normal(rng, N, m), normal(rng, m, n), normal(rng, N, n))


@backpropagate_error.check(points=2, needs="one_layer_back")
def all_the_way_back(student, rng):
    "Applied layer after layer, it gives what autograd calls ∂C/∂z in every layer."
    widths = (3, 4, 2, 5, 2)
    weights, biases = network(rng, widths)
    x, y = normal(rng, 3), normal(rng, 2)
    _, _, deltas = autograd(weights, biases, x, y)
    zs, _ = run(weights, biases, x)
    delta = deltas[-1]
    for i in range(len(zs) - 2, -1, -1):
        delta = student.backpropagate_error(delta, weights[i + 1], zs[i])
        checks.close(delta, deltas[i], name=f"delta of layer {i + 2}", why=f"∂C/∂z in {widths_text(widths)}.")


# ----------------------------------------------------------------------------------------------- gradients


def layer_inputs(rng, widths):
    """A sample's errors, activations and gradients in a random network: deltas, activations, (dW, db)."""
    weights, biases = network(rng, widths)
    x, y = normal(rng, widths[0]), normal(rng, widths[-1])
    weight_grads, bias_grads, deltas = autograd(weights, biases, x, y)
    return deltas, run(weights, biases, x)[1], weight_grads, bias_grads


def ask_gradients(student, deltas, activations):
    got = student.gradients([d.clone() for d in deltas], [a.clone() for a in activations])
    n = len(deltas)
    two_lists(got, "gradients", ("weight_grads", "bias_grads"), (n, n), "One entry for each layer of weights.")
    return got


def outer_mistakes(i, deltas, activations) -> dict:
    delta, a = deltas[i], activations[i]
    mistakes = {"The outer product is transposed: ∂C/∂W = δ aᵀ has a row for each entry of δ.": torch.outer(a, delta)}
    if len(delta) == len(a):
        mistakes["This is an elementwise product: δ aᵀ is a matrix, torch.outer(δ, a)."] = delta * a
    mistakes["This uses the layer's own a: W^l multiplies a^(l-1), the activation of the layer before."] = torch.outer(
        delta, activations[i + 1]
    )
    return mistakes


def check_weight_grads(student, rng, widths):
    deltas, activations, weight_grads, _ = layer_inputs(rng, widths)
    got, _ = ask_gradients(student, deltas, activations)
    for i, expected in enumerate(weight_grads):
        checks.close(
            got[i],
            expected,
            name=f"weight_grads[{i}]",
            why=f"∂C/∂W = δ aᵀ: entry [j, k] is δ_j a_k; layer {i + 2} of {widths_text(widths)}.",
            mistakes=outer_mistakes(i, deltas, activations),
        )


@gradients.check(points=5)
def outer_products(student, rng):
    "∂C/∂W = δ aᵀ has the shape of W, and the values of autograd."
    for widths in ((1, 1), (3, 2), (4, 2, 3, 1)):
        check_weight_grads(student, rng, widths)


@gradients.check(points=2)
def square_layers(student, rng):
    "Rows belong to δ and columns to a, also where both are equally many."
    check_weight_grads(student, rng, (3, 3, 3))


@gradients.check(points=3)
def bias_gradients(student, rng):
    "∂C/∂b = δ, layer by layer."
    for widths in ((3, 2), (4, 2, 3, 1)):
        deltas, activations, _, bias_grads = layer_inputs(rng, widths)
        _, got = ask_gradients(student, deltas, activations)
        for i, expected in enumerate(bias_grads):
            why = f"b moves z one to one, so ∂C/∂b = δ, in layer {i + 2} of {widths_text(widths)}."
            checks.close(got[i], expected, name=f"bias_grads[{i}]", why=why)


# ------------------------------------------------------------------------------------------------ backprop


def variant(weights, biases, X, Y, output=slope, hidden=slope):
    """Mean gradients `(dC/dW, dC/db)` with other factors in place of σ'(z) in the last and in the hidden layers."""
    zs, activations = run(weights, biases, X)
    delta = (activations[-1] - Y) * output(zs[-1])
    weight_grads, bias_grads = [], []
    for i in range(len(weights) - 1, -1, -1):
        weight_grads.insert(0, delta.T @ activations[i] / len(X))
        bias_grads.insert(0, delta.mean(dim=0))
        delta = (delta @ weights[i]) * hidden(zs[i - 1]) if i else None
    return weight_grads, bias_grads


def backprop_mistakes(weights, biases, X, Y, expected) -> dict:
    """What known mistakes give in place of `expected`, in every layer."""
    N = len(X)
    mistakes = {
        "The sign is turned round: the error of the output is (a − y) ⊙ σ'(z).": -1.0,
        "A factor 2 too much: C has a factor ½, so ∂C/∂a = a − y.": 2.0,
    }
    if N > 1:
        mistakes[f"This is the sum over the {N} samples: C is their mean, so divide by N = len(X)."] = float(N)
        mistakes["You divide by N twice."] = 1 / N
    scaled = {sentence: [[f * g for g in part] for part in expected] for sentence, f in mistakes.items()}
    return scaled | {
        "σ'(z) is missing in the error of the last layer.": variant(weights, biases, X, Y, output=torch.ones_like),
        "σ'(z) is missing in the errors of the hidden layers.": variant(weights, biases, X, Y, hidden=torch.ones_like),
        "σ'(z) is missing everywhere.": variant(weights, biases, X, Y, torch.ones_like, torch.ones_like),
        "σ(z) stands in place of its derivative σ'(z).": variant(weights, biases, X, Y, torch.sigmoid, torch.sigmoid),
    }


def check_backprop(student, rng, widths, N, dtype=F64):
    weights, biases = network(rng, widths, dtype)
    X, Y = normal(rng, N, widths[0], dtype=dtype), torch.rand(N, widths[-1], generator=rng, dtype=F64).to(dtype)
    *expected, deltas = autograd(weights, biases, X, Y)
    mistakes = backprop_mistakes(weights, biases, X, Y, expected)
    got, n = student.backprop(weights, biases, X, Y), len(weights)
    two_lists(got, "backprop", ("weight_grads", "bias_grads"), (n, n), "One entry for each layer of weights.")
    for i in range(n - 1, -1, -1):  # from the last layer back, as the errors flow: the first wrong one is the cause
        for part, name in enumerate(("weight_grads", "bias_grads")):
            named, right = {sentence: value[part][i] for sentence, value in mistakes.items()}, expected[part][i]
            reverse = expected[part][n - 1 - i] if 2 * i != n - 1 else None
            if reverse is not None:
                named[
                    "The list runs from the last layer to the first: put each new gradient in front, insert(0, ...)."
                ] = reverse
            if part == 0 and right.shape[0] == right.shape[1]:
                named["The gradient is transposed: delta.T @ a, with a row for each entry of delta."] = right.T
            if part == 1:
                named["This is δ, with a row for each sample: take the mean over the samples, delta.mean(dim=0)."] = (
                    N * deltas[i]
                )
            setting = f"{N} sample{'s' * (N > 1)} in {widths_text(widths)}"
            why = f"{setting}; expected is autograd's gradient of the mean cost."
            checks.close(got[part][i], right, name=f"{name}[{i}]", why=why, mistakes=named)


@backprop.check(points=4)
def one_row(student, rng):
    "For a batch of one sample, the gradients of autograd."
    for widths in ((2, 1), (3, 4, 2)):
        check_backprop(student, rng, widths, N=1)


@backprop.check(points=6)
def the_mean_of_a_batch(student, rng):
    "For a batch, the gradient of the mean cost, not of the sum."
    for widths, N, dtype in (((3, 2), 5, F64), ((2, 3, 2), 7, F64), ((4, 6, 3), 32, torch.float32)):
        check_backprop(student, rng, widths, N, dtype)


@backprop.check(points=4, needs="one_row")
def any_depth_and_width(student, rng):
    "Networks of two to eight layers, some of them one neuron wide."
    for _ in range(6):
        depth = int(torch.randint(2, 9, (), generator=rng))
        widths = tuple(torch.randint(1, 7, (depth,), generator=rng).tolist())
        check_backprop(student, rng, widths, N=int(torch.randint(1, 9, (), generator=rng)))


def fastest(function, repeats: int = 3) -> float:
    """The least seconds of a few calls: a busy machine only ever adds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@backprop.check(points=4, needs="the_mean_of_a_batch", seconds=20)
def no_loop_over_samples(student, rng):
    "A batch of 4,096 samples takes a few times as long as one sample, not thousands of times."
    weights, biases = network(rng, (4, 5, 3))
    X, Y = normal(rng, 4096, 4), torch.rand(4096, 3, generator=rng, dtype=F64)
    one = fastest(lambda: student.backprop(weights, biases, X[:1], Y[:1]), 5)
    many = fastest(lambda: student.backprop(weights, biases, X, Y), 2)
    checks.that(
        many < max(100 * one, 0.1),
        f"4,096 samples took {many / one:,.0f} times as long as one: your function goes through them one by one. "
        "One matrix product per layer, delta.T @ a, sums over all samples at once.",
        got=f"{one * 1e3:.2g} ms for one sample, {many * 1e3:,.0f} ms for 4,096",
        expected="less than 100 times as long",
    )


@backprop.check(points=2)
def leaves_parameters_alone(student, rng):
    "Weights, biases and data are the same after the call: gradients are computed, nothing is trained yet."
    weights, biases = network(rng, (3, 3, 2))
    X, Y = normal(rng, 4, 3), normal(rng, 4, 2)
    names = ("weights[0]", "weights[1]", "biases[0]", "biases[1]", "X", "Y")
    before = [t.clone() for t in (*weights, *biases, X, Y)]
    student.backprop(weights, biases, X, Y)
    for value, old, name in zip((*weights, *biases, X, Y), before, names, strict=True):
        checks.unchanged(value, old, name=name)


# ------------------------------------------------------------------------------------------------ backward
#
# The nodes live in the student's process: `student.Value(2.0)` is a handle on one of `hpcdl.nn.value`, and operators on
# handles build the graph there. `student.backward(y)` receives the very node, and `x.grad` reads a plain number back.


def swept(student, f, numbers):
    """Gradients of `f` at `numbers` after the student's sweep, and those of autograd; both are lists of floats."""
    inputs = [student.Value(x) for x in numbers]
    student.backward(f(*inputs))
    oracle = [torch.tensor(x, dtype=F64, requires_grad=True) for x in numbers]
    expected = torch.autograd.grad(f(*oracle), oracle)
    return [x.grad for x in inputs], [g.item() for g in expected]


def some(rng, n: int) -> list[float]:
    """Numbers of two decimals between 0.5 and 1.5, all different, so that a message can be followed by hand."""
    return [0.5 + (i + int(torch.randint(10, (), generator=rng)) / 10) / n for i in range(n)]


def check_grads(got, expected, names: str, formula: str, mistakes=None) -> None:
    for x, grad, right in zip(names.split(), got, expected, strict=True):
        named = dict((mistakes or {}).get(x, {}))
        if right != 1.0:
            named.setdefault(
                "It is 1, as only the last node's should be. Does a call of backward on a parent set it again?", 1.0
            )
            named.setdefault(
                "It was never reached: every parent's grad must grow by slope * node.grad, down to the leaves.", 0.0
            )
        checks.close(grad, right, name=f"{x}.grad for {formula}", rtol=1e-9, mistakes=named)


@backward.check(points=4)
def the_chain_rule(student, rng):
    "Without reuse, every gradient is the product of the slopes along the path."
    a, b, c = some(rng, 3)
    cases = (
        ("y = a", lambda a: a * 1.0, "a", [a]),
        ("y = 3 a + b", lambda a, b: a * 3 + b, "a b", [a, b]),
        ("y = a b − c", lambda a, b, c: a * b - c, "a b c", [a, b, c]),
        ("y = tanh(exp(a) / b)", lambda a, b: (a.exp() / b).tanh(), "a b", [a, b]),
    )
    for formula, f, names, numbers in cases:
        got, expected = swept(student, f, numbers)
        check_grads(got, expected, names, f"{formula} at {', '.join(f'{x:.3g}' for x in numbers)}")


@backward.check(points=1, needs="the_chain_rule")
def the_root_and_what_lies_between(student, rng):
    "The last node's own gradient is 1, and every node on the way has its gradient."
    x = student.Value(2.0)
    u = x * 3
    y = u * u + 1
    student.backward(y)
    checks.close(y.grad, 1.0, name="y.grad", why="How fast y changes with itself: ∂y/∂y = 1.")
    checks.close(u.grad, 12.0, name="u.grad for u = 3 x, y = u² + 1 at x = 2", why="∂y/∂u = 2 u = 12.")


@backward.check(points=3)
def a_reused_node_accumulates(student, rng):
    "A node that is used twice sums what comes back on both paths."
    a, b = some(rng, 2)
    overwritten = "The last path overwrote the others: a gradient accumulates, parent.grad += slope * node.grad."
    got, expected = swept(student, lambda a: a * a, [a])
    check_grads(got, expected, "a", f"y = a a at {a:.3g}", {"a": {overwritten: a}})
    got, expected = swept(student, lambda a, b: a * b + a, [a, b])
    named = {"a": {overwritten: 1.0, overwritten + " ": b}}  # by the path through the sum, or by the product
    check_grads(got, expected, "a b", f"y = a b + a at {a:.3g}, {b:.3g}", named)


@backward.check(points=2, needs="a_reused_node_accumulates")
def a_node_waits_for_its_children(student, rng):
    "A node passes its gradient on only when all paths to it have arrived, however long they are."
    for x, formula, f in (
        (1.5, "u = 2 x, y = u + u u u", lambda u: u + u * u * u),
        (0.5, "u = 2 x, y = u u u + u", lambda u: u * u * u + u),
        (0.7, "u = 2 x, y = u + tanh(exp(u))", lambda u: u + u.exp().tanh()),
    ):
        got, expected = swept(student, lambda x, f=f: f(x * 2), [x])
        early = (
            "u passed on before all paths to it had arrived: visit the nodes from the largest index to the smallest."
        )
        checks.that(
            abs(got[0] - expected[0]) <= 1e-9 * abs(expected[0]),
            f"x.grad for {formula} at x = {x} is {show.number(got[0])}, expected {show.number(expected[0])}. {early}",
        )


@backward.check(points=1, needs="a_reused_node_accumulates")
def a_second_sweep(student, rng):
    "Called again, it gives the same: every sweep starts from zero."
    x = student.Value(3.0)
    y = x * x
    student.backward(y)
    student.backward(y)
    checks.that(
        type(x.grad) is float and abs(x.grad - 6.0) < 1e-9,
        "After a second call x.grad is another number: the sweep added to the first one. Set every grad to 0 first.",
        got=x.grad,
        expected=6.0,
        why="y = x x at x = 3.",
    )


@backward.check(points=2, needs="the_chain_rule", seconds=20)
def a_long_chain(student, rng):
    "A chain of 5,000 nodes needs no recursion."
    x = y = student.Value(1.0)
    for _ in range(5000):
        y = y + 0.001
    student.backward(y)
    checks.close(x.grad, 1.0, name="x.grad at the end of a chain of 5,000 additions")


@backward.check(points=2, needs="a_reused_node_accumulates", seconds=3)
def each_node_once(student, rng):
    "Forty doublings have 2⁴⁰ paths and 41 nodes: each node is visited once, not once for each path."
    x = y = student.Value(1.0)
    for _ in range(40):
        y = y + y
    student.backward(y)
    checks.close(x.grad, 2.0**40, name="x.grad after 40 doublings", rtol=1e-12)


# --------------------------------------------------------------------------------- softmax_cross_entropy


def loss_oracle(logits, labels):
    logits = logits.double().clone().requires_grad_()
    loss = functional.cross_entropy(logits, labels)
    return loss.item(), torch.autograd.grad(loss, logits)[0]


def scores(rng, N: int, K: int, dtype=F64):
    return normal(rng, N, K, dtype=dtype), torch.randint(K, (N,), generator=rng)


def ask_softmax(student, logits, labels):
    got = student.softmax_cross_entropy(logits.clone(), labels.clone())
    checks.that(
        type(got) in (tuple, list) and len(got) == 2,
        f"softmax_cross_entropy returned {show.an(show.type_name(got))}, expected (loss, dlogits).",
        got=got,
    )
    return got


@softmax.check(points=3)
def mean_loss(student, rng):
    "The loss is the mean over the samples of −log of the probability given to the right class."
    for N, K, dtype in ((4, 4, F64), (1, 3, F64), (5, 4, F64), (32, 10, torch.float32)):
        logits, labels = scores(rng, N, K, dtype)
        right, _ = loss_oracle(logits, labels)
        table = torch.softmax(logits.double(), dim=1)
        p = table[range(N), labels]
        mistakes = {
            "This is the mean probability: take −log of it, sample by sample.": p.mean().item(),
            "The sign is missing: −log(p) is positive.": -right,
            "This takes −log of the mean: take the mean of −log.": -math.log(p.mean().item()),
        }
        if N > 1:
            mistakes[f"This is the sum over the {N} samples: take the mean."] = N * right
            if labels.max() < N:
                mistakes["p[labels] picks whole rows: p[rows, labels] picks the right class of each row."] = (
                    -table[labels].log().mean().item()
                )
            mistakes[f"This divides by all {N * K} logits: divide by the {N} samples."] = right / K
        got, _ = ask_softmax(student, logits, labels)
        checks.close(
            got, right, name=f"loss of {N} sample{'s' * (N > 1)} and {K} classes", rtol=2e-5, mistakes=mistakes
        )


@softmax.check(points=3)
def gradient_of_the_loss(student, rng):
    "dlogits is (p − one-hot) / N, as autograd says."
    for N, K, dtype in ((4, 4, F64), (1, 3, F64), (32, 10, torch.float32)):
        logits, labels = scores(rng, N, K, dtype)
        _, right = loss_oracle(logits, labels)
        p, columns = torch.softmax(logits.double(), dim=1), torch.softmax(logits.double(), dim=0)
        one_hot = functional.one_hot(labels, K).double()
        mistakes = {
            "The one-hot vector of the label is missing: subtract 1 at the right class.": p / N,
            "The sign is turned round: p − one-hot.": -right,
            "The softmax runs over the samples: a row is a sample, so use dim=1.": (columns - one_hot) / N,
        }
        if N > 1:
            mistakes[f"The loss is a mean: divide by the {N} samples."] = N * right
        if N == K:
            numbers = "The labels are class numbers, not a table: subtract 1 at the right class of each row."
            mistakes |= {numbers: p - labels, numbers + " ": (p - labels) / N}
        _, got = ask_softmax(student, logits, labels)
        why = "∂L/∂z = (softmax(z) − one-hot(label)) / N."
        checks.close(got, right.to(dtype), name="dlogits", why=why, mistakes=mistakes)


@softmax.check(points=1)
def rows_sum_to_zero(student, rng):
    "Each row of dlogits sums to 0: probabilities only move from class to class."
    for N, K in ((6, 3), (2, 10)):
        logits, labels = scores(rng, N, K)
        _, got = ask_softmax(student, 5 * logits, labels)
        checks.tensor(got, name="dlogits", shape=(N, K), dtype=F64)
        checks.close(got.sum(dim=1), torch.zeros(N, dtype=F64), name="dlogits.sum(dim=1)", atol=1e-12)


@softmax.check(points=3)
def huge_logits(student, rng):
    "Logits of ±10,000 give finite numbers: e^z overflows, e^(z − max) does not."
    for dtype in (F64, torch.float32):
        logits = torch.tensor([[1e4, 0.0, -1e4], [-1e4, 1e4, 1e4], [-1e4, -1e4, -1e4]], dtype=dtype)
        labels = torch.tensor([1, 2, 0])
        right, grad = loss_oracle(logits, labels)
        loss, dlogits = ask_softmax(student, logits, labels)
        value = loss.item() if type(loss) is torch.Tensor and loss.numel() == 1 else loss
        checks.that(
            type(value) is not float or math.isfinite(value),
            f"The loss is {value} for logits of ±10,000: exp(10000) overflows, and log(0) is −inf. "
            "Subtract each row's maximum first, and write log p = z − max − log(Σ exp(z − max)).",
            got=loss,
            expected=right,
        )
        checks.close(loss, right, name="loss", rtol=1e-5, why="A sure and wrong answer costs the full 10,000.")
        checks.close(dlogits, grad.to(dtype), name="dlogits", atol=1e-6)


# --------------------------------------------------------------------------------------------------- train


def step_oracle(weights, biases, X, labels, lr):
    """One full-batch step of gradient descent on the cross-entropy, by autograd; the last layer has no σ."""
    parameters = [p.clone().requires_grad_() for p in (*weights, *biases)]
    zs, _ = run(parameters[: len(weights)], parameters[len(weights) :], X)
    grads = torch.autograd.grad(functional.cross_entropy(zs[-1], labels), parameters)
    new = [p.detach() - lr * g for p, g in zip(parameters, grads, strict=True)]
    return new[: len(weights)], new[len(weights) :]


def step_variant(weights, biases, X, labels, lr, *, squashed=False, late=False):
    """The same step with a mistake: σ(z) taken for the logits, or errors sent back through weights already changed."""
    old, weights, biases = weights, list(weights), list(biases)
    zs, activations = run(weights, biases, X)
    delta = loss_oracle(activations[-1] if squashed else zs[-1], labels)[1]
    for i in range(len(weights) - 1, -1, -1):
        weights[i] = weights[i] - lr * delta.T @ activations[i]
        biases[i] = biases[i] - lr * delta.sum(dim=0)
        delta = (delta @ (weights if late else old)[i]) * slope(zs[i - 1]) if i else delta
    return weights, biases


def problem(rng, N: int, widths=(4, 5, 3)):
    weights, biases = network(rng, widths)
    return weights, biases, normal(rng, N, widths[0]), torch.randint(widths[-1], (N,), generator=rng)


def ask_train(student, network_, data, lr, batch_size, epochs, generator):
    weights, biases = network_
    copies = [W.clone() for W in weights], [b.clone() for b in biases]
    got = student.train(*data, *copies, lr, batch_size, epochs, generator)
    two_lists(got, "train", ("weights", "biases"), (len(weights), len(biases)), "The trained network.")
    return got


def check_parameters(got, expected, start, why: str, mistakes, **tolerance):
    for part, name in enumerate(("weights", "biases")):
        for i in range(len(expected[part]) - 1, -1, -1):
            moved = expected[part][i] - start[part][i]
            named = {}
            for sentence, value in mistakes.items():  # as a multiple of the right move, or as parameters
                named[sentence] = start[part][i] + value * moved if type(value) is float else value[part][i]
            checks.close(got[part][i], expected[part][i], name=f"{name}[{i}]", why=why, mistakes=named, **tolerance)


@train.check(points=3)
def one_step(student, rng):
    "One epoch with one batch is one step of gradient descent on the cross-entropy."
    for widths in ((4, 3), (3, 5, 4), (2, 4, 3, 3)):
        weights, biases, X, labels = problem(rng, 9, widths)
        got = ask_train(student, (weights, biases), (X, labels), 0.3, 9, 1, torch.Generator().manual_seed(1))
        case = (weights, biases, X, labels, 0.3)
        expected = step_oracle(*case)
        mistakes = {
            "Nothing changed: is each new weight stored, and the loop run?": 0.0,
            "The step is 9 times too long for 9 samples: dlogits belongs to the mean loss, so it is divided by N.": 9.0,
            "It climbs: the step goes against the gradient.": -1.0,
            "softmax_cross_entropy has divided by N already: don't do it twice.": 1 / 9,
            "The learning rate is missing.": 1 / 0.3,
            "The errors went back through new weights: the weights were changed before they were used. "
            "Compute the error of the layer before, and change the weights after.": step_variant(*case, late=True),
            "σ(z) of the last layer was taken for the logits: they are zs[-1].": step_variant(*case, squashed=True),
        }
        why = "w − lr ∂L/∂w, all gradients taken at the old weights; the last layer gives logits z, without σ."
        check_parameters(got, expected, (weights, biases), why, mistakes)


@train.check(points=2, needs="one_step")
def the_short_last_batch(student, rng):
    "Every sample counts once in an epoch, also those of the last, shorter batch."
    weights, biases, X, labels = problem(rng, 1)
    lr, N, size = 1e-6, 7, 3
    data = X.expand(N, -1).clone(), labels.expand(N).clone()
    got = ask_train(student, (weights, biases), data, lr, size, 1, torch.Generator().manual_seed(2))
    expected = step_oracle(weights, biases, X, labels, 3 * lr)
    mistakes = {
        "The last batch is missing: 7 samples in batches of 3 are three batches, of 3, 3 and 1.": 2 / 3,
        "Only one step was made: an epoch has a step for each batch.": 1 / 3,
    }
    why = "Seven equal samples in batches of 3: three steps of the same gradient."
    check_parameters(got, expected, (weights, biases), why, mistakes, rtol=0.0, atol=1e-9)


@train.check(points=1, needs="one_step")
def a_new_order_each_epoch(student, rng):
    "The order of the samples comes from the generator, anew in each epoch."
    weights, biases, X, labels = problem(rng, 12)

    def trained(seed, *epochs):
        generator, parameters = torch.Generator().manual_seed(seed), (weights, biases)
        for n in epochs:
            parameters = ask_train(student, parameters, (X, labels), 0.5, 2, n, generator)
        return parameters[0][-1]

    checks.that(
        not torch.equal(trained(1, 1), trained(2, 1)),
        "Two generators gave the same network: shuffle the samples, torch.randperm(len(X), generator=generator).",
    )
    checks.close(
        trained(3, 2),
        trained(3, 1, 1),
        name="weights[-1] after epochs=2",
        why="Two epochs in one call equal two calls with one epoch each, if each epoch draws its own order.",
    )


@train.check(points=1, needs="one_step")
def leaves_the_start_alone(student, rng):
    "The network that was passed in stays as it is; a new one is returned."
    weights, biases, X, labels = problem(rng, 6)
    before = [p.clone() for p in (*weights, *biases)]
    names = ("weights[0]", "weights[1]", "biases[0]", "biases[1]")
    student.train(X, labels, weights, biases, 0.1, 3, 1, torch.Generator().manual_seed(1))
    for value, old, name in zip((*weights, *biases), before, names, strict=True):
        checks.unchanged(value, old, name=name)


@train.check(points=3, needs="one_step", seconds=30)
def reads_digits(student, rng):
    "Trained on 1,438 handwritten digits, the network reads at least 95 % of 359 others."
    from hpcdl.data import digits
    from hpcdl.nn.mlp import initial

    split, start = digits(), initial((64, 32, 10), torch.Generator().manual_seed(0))
    weights, biases = ask_train(student, start, (split.x.flatten(1), split.y), 2.0, 32, 30, rng)
    zs, _ = run(weights, biases, split.x_held_out.flatten(1))
    right = (zs[-1].argmax(dim=1) == split.y_held_out).float().mean().item()
    checks.that(
        right >= 0.95,
        f"Your network reads {right:.1%} of the held-out digits after 30 epochs, expected at least 95 %.",
        why="A 64-32-10 network, lr = 2, batches of 32: a right answer reaches 97 to 98 %, in any order of samples.",
    )
