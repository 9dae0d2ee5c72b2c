"""Linear layers: each rank holds a part of the weights, by columns or by rows.

After Shoeybi et al. 2019 ("Megatron-LM", section 3), who write y = x A and cut A: the columns of A are outputs, its
rows are inputs. A column layer, an activation and a row layer together need one all-reduce forward and one backward.
"""

import torch
from torch import nn
from torch.nn.functional import linear

from hpcdl.comm import Communicator
from hpcdl.parallel.shares import share
from hpcdl.parallel.tensor.conjugate import copy, gather, reduce, reduce_scatter
from hpcdl.parallel.tensor.dense import SplitLayer, as_parameter, parameter, part_of, require_plain
from hpcdl.parallel.tensor.weights import within


class ColumnLinear(SplitLayer):
    """This rank's outputs of a linear layer: y_r = x A_r^T + b_r, with A_r its rows of `weight`, (outputs, inputs).

    x: (..., inputs), the same on every rank; y_r: (..., this rank's share of outputs). Forward it sends nothing;
    backward it sums the gradient of x over the ranks. With `sequence`, the tokens of the whole sequence, x is this
    rank's share of them, (..., tokens, inputs), and all-gather forward, reduce-scatter backward take the sum's place;
    what was gathered is kept for the gradient of the weights (Megatron-LM gathers it again).
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, comm: Communicator, sequence: int | None = None
    ):
        super().__init__()
        self.comm, self.sequence = comm, sequence
        self.weight, self.bias = as_parameter(weight), None if bias is None else as_parameter(bias)

    @classmethod
    def of(cls, dense: nn.Linear, comm: Communicator, sequence: int | None = None) -> "ColumnLinear":
        """Return this rank's part of a layer that every rank has whole; ValueError as `require_plain`."""
        require_plain(dense, nn.Linear)
        weight, bias = (
            parameter(dense, name, comm, lambda x: share(x, comm), "dimension 0") for name in ("weight", "bias")
        )
        assert weight is not None
        return cls(weight, bias, comm, sequence).train(dense.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = copy(x, self.comm) if self.sequence is None else gather(x, self.comm, self.sequence)
        return within(linear, x, part_of(self, "weight", self.comm), part_of(self, "bias", self.comm))


class RowLinear(SplitLayer):
    """The sum over the ranks of what each makes of its inputs: y = sum_r x_r A_r^T + b, with A_r columns of `weight`.

    x_r: (..., this rank's share of inputs), as a `ColumnLinear` leaves it; y: (..., outputs), the same on every rank.
    Forward it sums y over the ranks, and then adds the bias, once; backward it sends nothing. With `sequence` y is this
    rank's share of the tokens, by reduce-scatter forward and all-gather backward; then the gradient of the bias, which
    every rank has whole, is of these tokens alone: `sum_gradients` completes it.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, comm: Communicator, sequence: int | None = None
    ):
        super().__init__()
        self.comm, self.sequence = comm, sequence
        self.weight, self.bias = as_parameter(weight), None if bias is None else as_parameter(bias)

    @classmethod
    def of(cls, dense: nn.Linear, comm: Communicator, sequence: int | None = None) -> "RowLinear":
        """Return this rank's part of a layer that every rank has whole; ValueError as `require_plain`."""
        require_plain(dense, nn.Linear)
        weight = parameter(dense, "weight", comm, lambda x: share(x, comm, dim=1), "dimension 1")
        assert weight is not None
        return cls(weight, parameter(dense, "bias", comm), comm, sequence).train(dense.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = within(linear, x, part_of(self, "weight", self.comm))
        y = reduce(y, self.comm) if self.sequence is None else reduce_scatter(y, self.comm)
        return y if self.bias is None else y + self.bias.to(y.dtype)  # under autocast y has 16 bits
