"""Predict the seconds of a step on this processor: `--machine here`.

A few constants describe the processor (`hpcdl.training.hybrid.rates` measures them once). The trainer then runs two
steps on simulated ranks, on which each of torch's operators takes the virtual seconds that the constants say, by its
kind, operations and bytes. The step itself is never timed.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from math import log
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from hpcdl.comm import Communicator, simulate
from hpcdl.training.hybrid.configuration import Configuration

Curve = Sequence[Sequence[float]]  # (amount of work, seconds for each unit of it), by growing amounts
FREE: Curve = ((1.0, 0.0),)

# Parts of the names of operators that compute more for each element than a sum.
FUNCTIONS = ("gelu", "softmax", "layer_norm", "exp_", "logsumexp", "tanh", "max_pool", "nll_loss", "embedding")
NOTHING_MOVES = ("_unsafe_view", "_local_scalar_dense", "_record_function", "empty", "aten.detach")
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


class Here(NamedTuple):
    """A processor's constants: seconds of an operator's call, of its work, and of a message between two ranks.

    A call that moves nothing takes `view` seconds; all others take `forward`, `backward` or, without autograd,
    `update`. `product` and `convolution` are seconds per operation by a call's operations; `moved` and `function` are
    seconds per byte by a call's bytes. A message takes `alpha` seconds, and `beta` for each byte.
    """

    view: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    update: float = 0.0
    product: Curve = FREE
    convolution: Curve = FREE
    moved: Curve = FREE
    function: Curve = FREE
    alpha: float = 0.0
    beta: float = 0.0

    def step_seconds(self, configuration: Configuration) -> float:
        """Return the seconds of a full step: the slowest rank's, in virtual time."""
        from hpcdl.training.trainer import Trainer

        def rank(comm: Communicator) -> float:
            records: list[dict[str, Any]] = []
            trainer = Trainer(comm, configuration.changed(steps=2))
            with Charged(self, comm.compute):
                trainer.train(records.append)
            return records[-1]["seconds"]

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return max(simulate(rank, configuration.ranks, alpha=self.alpha, beta=self.beta).results)
        finally:
            torch.set_num_threads(threads)

    def operator_seconds(self, call: "Call") -> float:
        """Return the seconds of one operator's call and work."""
        if call.name == "view":
            return self.view
        fixed, curve = getattr(self, call.phase), getattr(self, call.name)
        return fixed + call.amount * per_unit(curve, call.amount)


def per_unit(curve: Curve, amount: float) -> float:
    """Return the seconds per unit between the curve's points, by the amount's logarithm; its ends continue level."""
    place = bisect(curve, amount, key=lambda point: point[0])
    if place in (0, len(curve)):
        return curve[min(place, len(curve) - 1)][1]
    (a, low), (b, high) = curve[place - 1 : place + 1]
    return low + (high - low) * log(amount / a) / log(b / a)


class Call(NamedTuple):
    """An operator's call: the `name` of its work in `Here`, or "view", its `phase`, and the `amount` of work."""

    name: str
    phase: str
    amount: float


def call_of(operator: Any, inputs: Any, options: Any, output: Any) -> Call:
    """Return what a call does; a product's work counts operations, every other's the bytes of inputs and outputs."""
    packet, name, phase = operator.overloadpacket, str(operator), _phase()
    if packet in flop_registry:
        flops = flop_registry[packet](*inputs, **options, out_val=output)
        return Call("convolution" if "convolution" in name else "product", phase, float(flops))
    if ATTENTION in name:
        return Call("product", phase, _attention_flops(inputs, backward="backward" in name))
    if operator.is_view or any(part in name for part in NOTHING_MOVES):
        return Call("view", phase, 0.0)
    tensors = [x for x in tree_leaves((inputs, options, output)) if isinstance(x, torch.Tensor)]
    kind = "function" if any(part in name for part in FUNCTIONS) else "moved"
    return Call(kind, phase, float(sum(x.nbytes for x in tensors)))


def _attention_flops(inputs: Any, backward: bool) -> float:
    """Return the operations of two products forward; backward are five, because scores are computed again."""
    queries, keys = inputs[backward], inputs[backward + 1]
    return 2.0 * (5 if backward else 2) * queries.numel() * keys.shape[-2]


def _phase() -> str:
    """Return which pass the caller is in: autograd's backward pass, its forward pass, or neither."""
    if torch._C._current_graph_task_id() != -1:
        return "backward"
    return "forward" if torch.is_grad_enabled() else "update"


class Charged(TorchDispatchMode):
    """Let each operator of the block take its seconds: `compute` gets them."""

    def __init__(self, here: Here, compute: Callable[[float], Any]):
        super().__init__()
        self._here, self._compute = here, compute

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        self._compute(self._here.operator_seconds(call_of(func, args, kwargs or {}, output)))
        return output


class Listed(TorchDispatchMode):
    """List the calls of the block in `calls`."""

    def __init__(self):
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        self.calls.append(call_of(func, args, kwargs or {}, output))
        return output
