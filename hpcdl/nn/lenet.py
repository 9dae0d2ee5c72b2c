"""LeNet-5, the first convolutional network that read cheques."""

from torch import nn


def lenet5(channels: int = 1, classes: int = 10) -> nn.Sequential:
    """LeNet-5 for images of 28 x 28: `(N, channels, 28, 28) -> (N, classes)` logits; 61,706 weights for one channel.

    After LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document recognition", with what
    has become usual since: ReLU, max-pooling, and every feature map connected to all before it.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 6, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
