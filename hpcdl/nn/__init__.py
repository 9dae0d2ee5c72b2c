"""Networks of the course, from one neuron to tables of the large ones, one file each.

- `perceptron`: Rosenblatt's perceptron with the history of its updates
- `mlp`: a multi-layer perceptron and the four equations of backpropagation
- `value`: a tape of numbers, reverse-mode differentiation
- `lenet`: LeNet-5 as a torch module
- `transformer`: a small decoder as a list of layers; `decoder`: one whose layers have names
- `low_precision`: training with few stored bits
- `networks`: layer tables of the classic networks, with each layer's weights and multiplications
- `awkward`: small networks with features that data parallelism easily gets wrong
- `stage`: some layers as one stage of a pipeline, with separate B and W

Names are imported on first use; names in two files (`train`, `NETWORKS`) are available only in their files.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
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
