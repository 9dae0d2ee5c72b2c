"""The networks whose training steps are measured."""

import torch
from torch import nn

from hpcdl.nn.lenet import lenet5


def mlp() -> nn.Module:
    """784-2048-2048-10: 5.8 M weights, and little work for each."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a way past them."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        )
        self.norm_one, self.norm_two = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.past = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor):
        h = torch.relu(self.norm_one(self.one(x)))
        return torch.relu(self.norm_two(self.two(h)) + self.past(x))


def resnet() -> nn.Module:
    """Return a residual network of 8 layers for 32 x 32 images (He et al. 2016, section 4.2, n = 1): 78 k weights."""
    blocks = [ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2)]
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


# name -> how it is built, and the shape of a batch
MODELS = {"LeNet": (lenet5, (64, 1, 28, 28)), "MLP": (mlp, (64, 1, 28, 28)), "ResNet": (resnet, (16, 3, 32, 32))}
