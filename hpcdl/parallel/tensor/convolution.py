"""Convolutions: each rank holds some of the filters, or each filter's part for its channels.

AlexNet was trained so on two cards (Krizhevsky, Sutskever and Hinton 2012, "ImageNet classification with deep
convolutional neural networks"). As with linear layers, one after the other needs one all-reduce each way:
`ChannelConv2d(relu(FilterConv2d(x)))`. Where the next layer wants all channels: `join(y, comm, channels, dim=1)`.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv2d

from hpcdl.comm import Communicator
from hpcdl.parallel.shares import share
from hpcdl.parallel.tensor.conjugate import copy, reduce
from hpcdl.parallel.tensor.dense import SplitLayer, as_parameter, parameter, part_of, require_plain
from hpcdl.parallel.tensor.weights import within


class FilterConv2d(SplitLayer):
    """This rank's filters: (N, C, H, W), the same on every rank, to (N, its share of filters, H', W').

    Forward it sends nothing; backward it sums the gradient of its input. `of` raises ValueError for convolutions in
    groups, whose filters do not look at all channels, for padding other than with zeros, and for fewer than a filter
    for each rank.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, comm: Communicator, **options: Any):
        super().__init__()
        self.comm, self.options = comm, options  # stride, padding, dilation
        self.weight, self.bias = as_parameter(weight), None if bias is None else as_parameter(bias)

    @classmethod
    def of(cls, dense: nn.Conv2d, comm: Communicator) -> "FilterConv2d":
        """Return this rank's part of a convolution that every rank has whole."""
        options = _options(dense)
        _enough("out_channels", dense.out_channels, comm)
        weight, bias = (
            parameter(dense, name, comm, lambda x: share(x, comm), "dimension 0") for name in ("weight", "bias")
        )
        assert weight is not None
        return cls(weight, bias, comm, **options).train(dense.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = part_of(self, "weight", self.comm), part_of(self, "bias", self.comm)
        return within(conv2d, copy(x, self.comm), weight, bias, **self.options)


class ChannelConv2d(SplitLayer):
    """Each filter for this rank's channels: (N, its share of channels, H, W) to (N, filters, H', W').

    Forward it sums its output over the ranks, and then adds the bias, once; backward it sends nothing. `of` raises
    as that of `FilterConv2d`.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, comm: Communicator, **options: Any):
        super().__init__()
        self.comm, self.options = comm, options  # stride, padding, dilation
        self.weight, self.bias = as_parameter(weight), None if bias is None else as_parameter(bias)

    @classmethod
    def of(cls, dense: nn.Conv2d, comm: Communicator) -> "ChannelConv2d":
        """Return this rank's part of a convolution that every rank has whole."""
        options = _options(dense)
        _enough("in_channels", dense.in_channels, comm)
        weight = parameter(dense, "weight", comm, lambda x: share(x, comm, dim=1), "dimension 1")
        assert weight is not None
        return cls(weight, parameter(dense, "bias", comm), comm, **options).train(dense.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = reduce(within(conv2d, x, part_of(self, "weight", self.comm), **self.options), self.comm)
        return y if self.bias is None else y + self.bias.to(y.dtype).view(-1, 1, 1)  # under autocast y has 16 bits


def _options(dense: nn.Conv2d) -> dict[str, Any]:
    require_plain(dense, nn.Conv2d)
    if dense.groups != 1 or dense.padding_mode != "zeros":
        raise ValueError(
            f"the convolution has groups={dense.groups} and padding_mode={dense.padding_mode!r}; split filters need "
            "groups=1 and 'zeros': a convolution in groups is cut along its groups"
        )
    return {"stride": dense.stride, "padding": dense.padding, "dilation": dense.dilation}


def _enough(name: str, channels: int, comm: Communicator) -> None:
    if channels < comm.size:
        raise ValueError(f"{name} is {channels} on {comm.size} ranks; each rank has one or more: use fewer ranks")
