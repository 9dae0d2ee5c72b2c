"""One training step of a small network, stage by stage: its numbers, its arithmetic and what to say about it.

Layers, weights and errors are those of `hpcdl.nn.mlp`; `hpcdl.widgets.pictures.backprop` draws them.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from hpcdl.nn import mlp
from hpcdl.widgets.kit.style import BLUE, GREEN, VERMILLION, Alarm

WIDTHS = (2, 3, 2, 1)
LAST = len(WIDTHS)  # the number L of the output layer
WEIGHTS = (((0.9, -0.4), (-0.7, 1.1), (0.5, 0.6)), ((1.2, -0.8, 0.3), (-0.5, 0.9, 1.0)), ((1.4, -1.1),))
BIASES = ((0.1, -0.2, 0.3), (0.2, -0.1), (0.1,))


class EquationStep(NamedTuple):
    """One click: which equation is at work, at which layer (0: all of them), and its colour."""

    equation: int
    layer: int
    colour: str


EQUATIONS = (
    r"$a^l = \sigma(z^l), \quad z^l = W^l a^{l-1} + b^l$",
    r"$\delta^L = \nabla_a C \odot \sigma\,'(z^L)$",
    r"$\delta^l = ((W^{l+1})^T \delta^{l+1}) \odot \sigma\,'(z^l)$",
    r"$\partial C/\partial W^l = \delta^l\,(a^{l-1})^T$",
    r"$\partial C/\partial b^l = \delta^l$",
    r"$W \leftarrow W - \eta\,\partial C/\partial W$,  $b$ too",
)
NAMES = (
    "forward",
    "output error",
    "error, one layer back",
    "gradient of the weights",
    "gradient of the biases",
    "step",
)
STAGES = (
    EquationStep(-1, 1, BLUE),
    *(EquationStep(0, l, BLUE) for l in range(2, LAST + 1)),
    EquationStep(1, LAST, VERMILLION),
    *(EquationStep(2, l, VERMILLION) for l in range(LAST - 1, 1, -1)),
    EquationStep(3, 0, VERMILLION),
    EquationStep(4, 0, VERMILLION),
    EquationStep(5, 0, GREEN),
)
GRADIENTS, STEP = len(STAGES) - 3, len(STAGES) - 1


def passes(x1: float, x2: float, y: float, lr: float) -> SimpleNamespace:
    """All numbers of one training step; lists are indexed by layer minus 2, activations by layer minus 1."""
    weights = [torch.tensor(W, dtype=torch.float64) for W in WEIGHTS]
    biases = [torch.tensor(b, dtype=torch.float64) for b in BIASES]
    x, target = (torch.tensor(v, dtype=torch.float64) for v in ([x1, x2], [y]))
    zs, activations = mlp.feedforward(weights, biases, x)
    deltas = mlp.errors(weights, zs, activations[-1], target)
    grads = [torch.outer(delta, a) for delta, a in zip(deltas, activations[:-1], strict=True)]
    new_weights = [W - lr * g for W, g in zip(weights, grads, strict=True)]
    new_biases = [b - lr * d for b, d in zip(biases, deltas, strict=True)]
    return SimpleNamespace(
        weights=weights,
        biases=biases,
        zs=zs,
        activations=activations,
        deltas=deltas,
        grads=grads,
        new_weights=new_weights,
        new_biases=new_biases,
        target=target,
        lr=lr,
        before=float(mlp.cost(activations[-1], target)),
        after=float(mlp.cost(mlp.feedforward(new_weights, new_biases, x)[1][-1], target)),
    )


def arithmetic(run: Any, stage: int) -> list[str]:
    """The equation of this stage written out for the first neuron of its layer, in plain text."""
    equation, layer, _ = STAGES[stage]
    if equation == -1:
        return ["Press Next: the numbers in the", "circles are the activations a."]
    return (_forward, _output_error, _error_back, _weight_gradient, _bias_gradient, _update)[equation](run, layer)


def _forward(run, layer: int) -> list[str]:
    W, a, b = run.weights[layer - 2][0], run.activations[layer - 2], run.biases[layer - 2][0]
    terms = " + ".join(f"{signed(w)}·{short(x)}" for w, x in zip(W, a, strict=True))
    z = run.zs[layer - 2][0]
    return [
        "First neuron:",
        f"z = {terms}",
        f"    + {signed(b)} = {short(z)}",
        f"a = σ({short(z)}) = {short(mlp.sigma(z))}",
    ]


def _output_error(run, layer: int) -> list[str]:
    a, y, z = run.activations[-1][0], run.target[0], run.zs[-1][0]
    return [
        "C = ½ (y − a)², so ∇C = a − y:",
        f"δ = ({short(a)} − {short(y)}) · σ'({short(z)})",
        f"   = {short(a - y)} · {signed(mlp.sigma_prime(z))} = {short(run.deltas[-1][0])}",
    ]


def _error_back(run, layer: int) -> list[str]:
    column, delta, z = run.weights[layer - 1][:, 0], run.deltas[layer - 1], run.zs[layer - 2][0]
    terms = " + ".join(f"{signed(w)}·{signed(d)}" for w, d in zip(column, delta, strict=True))
    return [
        "First neuron, along its outgoing edges:",
        f"δ = ({terms})",
        f"    · σ'({short(z)}) = {short(column @ delta)} · {short(mlp.sigma_prime(z))}",
        f"   = {short(run.deltas[layer - 2][0])}",
    ]


def _weight_gradient(run, layer: int) -> list[str]:
    delta, a = run.deltas[0][0], run.activations[0][0]
    return [
        "What arrived times the error there,",
        "as on the edge at the top left:",
        f"{short(a)} · {signed(delta)} = {short(run.grads[0][0, 0])}",
    ]


def _bias_gradient(run, layer: int) -> list[str]:
    return ["A bias is a weight whose input is 1:", f"1 · {signed(run.deltas[0][0])} = {short(run.deltas[0][0])}"]


def _update(run, layer: int) -> list[str]:
    w, g = run.weights[-1][0, 0], run.grads[-1][0, 0]
    return [
        "Against the gradient; into the output:",
        f"w = {short(w)} − {short(torch.tensor(run.lr))} · {signed(g)} = {short(run.new_weights[-1][0, 0])}",
        f"C: {run.before:.3g} → {run.after:.3g}",
    ]


def short(x: torch.Tensor | float) -> str:
    """A number of the picture in at most five characters and a true minus sign."""
    x = float(x)
    size = abs(x)
    if 0 < size < 0.00095:
        text = f"{x:.0e}".replace("e-0", "e-")
    else:
        text = f"{x:.{1 if size >= 9.995 else 2 if size >= 0.095 or size == 0 else 3}f}"
    return text.replace("-", "−")


def signed(x: torch.Tensor) -> str:
    """As `short`, in parentheses where it is negative."""
    return f"({short(x)})" if x < 0 else short(x)


def sentence(run: Any, stage: int) -> str:
    """What happens at this stage, or what stops it."""
    equation, layer, _ = STAGES[stage]
    if 0 < equation < 5 and abs(float(run.activations[-1][0] - run.target[0])) < 0.005:
        return (
            "The output is as good as the target: the error is almost 0, and with it every gradient. Little to learn."
        )
    if equation == 2 and (least := float(mlp.sigma_prime(run.zs[layer - 2]).min())) < 0.01:
        return Alarm(
            f"Layer {layer} has a saturated neuron: its σ'(z) is {least:.1g}, so hardly any error gets through it."
        )
    return _SENTENCES[equation](run, layer)


def _forward_sentence(run, layer: int) -> str:
    if layer < LAST:
        return f"Layer {layer} adds up what comes along the edges, and its bias: that is z. Then a = σ(z)."
    a, y = float(run.activations[-1][0]), float(run.target[0])
    return f"The network says {a:.3f}, the target is {y:.2f}: the cost is C = ½ (y − a)² = {run.before:.3g}."


def _output_sentence(run, layer: int) -> str:
    excess = float(run.activations[-1][0] - run.target[0])
    way = "high" if excess > 0 else "low"
    return (
        f"The output is {abs(excess):.3f} too {way}. Times σ'(z), that is δ: how fast C grows with z of layer {LAST}."
    )


def _back_sentence(run, layer: int) -> str:
    return (
        f"The errors of layer {layer + 1} come back along the same edges, times the same weights: δ of layer {layer}."
    )


def _step_sentence(run, layer: int) -> str:
    before, after = f"{run.before:.3g}", f"{run.after:.3g}"
    if run.lr == 0:
        return Alarm("With a learning rate of 0 nothing changes.")
    if run.after > run.before:
        return Alarm(f"The step was too long: C rose from {before} to {after}. Lower the learning rate.")
    return f"One step of gradient descent: C falls from {before} to {after}. The edges show the new weights."


_SENTENCES = {
    -1: lambda *_: "Two numbers go in. Each edge carries its weight; each circle will hold its activation a.",
    0: _forward_sentence,
    1: _output_sentence,
    2: _back_sentence,
    3: lambda *_: "Each edge now shows its gradient: how fast C grows with that weight. One outer product per layer.",
    4: lambda *_: "A bias moves z one to one, so its gradient is the error itself. All gradients in one pass back.",
    5: _step_sentence,
}
