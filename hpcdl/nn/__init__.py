"""Networks of the course, from one neuron to tables of the large ones, one file each.

- `perceptron`: Rosenblatt's perceptron with the history of its updates
- `mlp`: a multi-layer perceptron and the four equations of backpropagation
- `value`: a tape of numbers, reverse-mode differentiation
- `lenet`: LeNet-5 as a torch module
- `transformer`: a small decoder as a list of layers; `decoder`: one whose layers have names
- `low_precision`: training where what is stored has few bits
- `networks`: layer tables of the classic networks, what each layer weighs and multiplies
- `awkward`: small networks with what data parallelism gets wrong most easily
- `stage`: some layers as one stage of a pipeline, with B and W apart

Names are imported when they are first used; those that two files have (`train`, `NETWORKS`) stay with their files.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.nn.awkward import MODELS, takes_time
    from hpcdl.nn.lenet import lenet5
    from hpcdl.nn.low_precision import Precision
    from hpcdl.nn.mlp import backprop, feedforward
    from hpcdl.nn.networks import Layer, total
    from hpcdl.nn.perceptron import History, separable, with_bias
    from hpcdl.nn.stage import Stage
    from hpcdl.nn.value import Value, backward

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "History": "perceptron",
        "separable": "perceptron",
        "with_bias": "perceptron",
        "backprop": "mlp",
        "feedforward": "mlp",
        "Value": "value",
        "backward": "value",
        "lenet5": "lenet",
        "Precision": "low_precision",
        "Layer": "networks",
        "total": "networks",
        "MODELS": "awkward",
        "Stage": "stage",
        "takes_time": "awkward",
    },
)
