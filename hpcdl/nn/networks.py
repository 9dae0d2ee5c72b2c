"""Layer tables of the classic networks: what each layer weighs and multiplies, without building it.

Weights and multiply-accumulates (MACs) of the forward pass for one image, biases and batch normalization left out, as
the survey of Sze et al. 2017 counts them ("Efficient processing of deep neural networks"). For
communication the order of the layers matters: gradients come out of the backward pass last layer first.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Layer(NamedTuple):
    """One layer with weights: how many weights, and forward MACs, input and output elements for one image."""

    name: str
    weights: int
    macs: int
    inputs: int
    outputs: int


def total(layers: Iterable[Layer], field: str) -> int:
    """Return the sum of one field over a network: `total(resnet50(), "weights")`."""
    return sum(getattr(layer, field) for layer in layers)


def lenet5() -> list[Layer]:
    """LeNet-5 for 28 x 28 images with a border of two, every map connected to all before it, as `hpcdl.nn.lenet`.

    After LeCun, Bottou, Bengio and Haffner 1998. The lecture's table names the 20 and 50 filters of a later, larger
    variant beside this network's weights; its 283 k MACs of convolutions belong to neither (here 358 k).
    """
    net = _Net(1, 28)
    net.conv(6, 5).pool(2, 2).conv(16, 5, padding=0).pool(2, 2)
    return net.linear(120).linear(84).linear(10).layers


def alexnet() -> list[Layer]:
    """AlexNet for 227 x 227 images, in two groups as published (Krizhevsky, Sutskever and Hinton 2012)."""
    net = _Net(3, 227)
    net.conv(96, 11, stride=4, padding=0).pool(3, 2)
    net.conv(256, 5, groups=2).pool(3, 2)
    net.conv(384, 3).conv(384, 3, groups=2).conv(256, 3, groups=2).pool(3, 2)
    return net.linear(4096).linear(4096).linear(1000).layers


def alexnet_tower() -> list[Layer]:
    """AlexNet in one tower for 227 x 227 images, as TensorFlow's benchmarks have it (after Krizhevsky 2014)."""
    net = _Net(3, 227)
    net.conv(64, 11, stride=4, padding=0).pool(3, 2).conv(192, 5).pool(3, 2)
    net.conv(384, 3).conv(384, 3).conv(256, 3).pool(3, 2)
    return net.linear(4096).linear(4096).linear(1000).layers


def overfeat_fast() -> list[Layer]:
    """OverFeat, the fast model, for 231 x 231 images (Sermanet et al. 2014, table 1).

    The lecture's table has the MACs of the linear layers of this network (130 M) and of VGG-16 (124 M) exchanged.
    """
    net = _Net(3, 231)
    net.conv(96, 11, stride=4, padding=0).pool(2, 2).conv(256, 5, padding=0).pool(2, 2)
    net.conv(512, 3).conv(1024, 3).conv(1024, 3).pool(2, 2)
    return net.linear(3072).linear(4096).linear(1000).layers


def vgg16() -> list[Layer]:
    """VGG-16 for 224 x 224 images (Simonyan and Zisserman 2015, configuration D)."""
    net = _Net(3, 224)
    for repeats, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(repeats):
            net.conv(channels, 3)
        net.pool(2, 2)
    return net.linear(4096).linear(4096).linear(1000).layers


def googlenet() -> list[Layer]:
    """GoogLeNet for 224 x 224 images, no auxiliary classifiers (Szegedy et al. 2015, table 1).

    The lecture's 1.43 G MACs are those of pooling that rounds down, to 55, 27, 13 and 6 pixels; the published sizes,
    56, 28, 14 and 7, make 1.58 G.
    """
    net = _Net(3, 224)
    net.conv(64, 7, stride=2).pool(3, 2, padding=1).conv(64, 1).conv(192, 3).pool(3, 2, padding=1)
    for stage in GOOGLENET:
        for one, reduced_3, three, reduced_5, five, pooled in stage:
            net.branches([(one, 1)], [(reduced_3, 1), (three, 3)], [(reduced_5, 1), (five, 5)], [(pooled, 1)])
        net.pool(3, 2, padding=1)
    net.size = 1  # global average pooling
    return net.linear(1000).layers


# Its table 1: filters of the 1 x 1 path, of the 3 x 3 and the 5 x 5 path (reduced, then full), behind the pooling.
GOOGLENET = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def resnet50() -> list[Layer]:
    """ResNet-50 for 224 x 224 images, stride on the 1 x 1 convolution as published (He et al. 2016, table 1)."""
    return _resnet(3, 4, 6, 3)


def resnet50_v1_5() -> list[Layer]:
    """ResNet-50 with the stride on the 3 x 3 convolution, as most programs have it: a tenth more MACs."""
    return _resnet(3, 4, 6, 3, late=True)


def resnet101() -> list[Layer]:
    """ResNet-101 for 224 x 224 images (He et al. 2016, table 1)."""
    return _resnet(3, 4, 23, 3)


def resnet152() -> list[Layer]:
    """ResNet-152 for 224 x 224 images (He et al. 2016, table 1)."""
    return _resnet(3, 8, 36, 3)


def inception_v3() -> list[Layer]:
    """Inception V3 for 299 x 299 images, no auxiliary classifier (Szegedy et al. 2016, as torchvision has it)."""
    net = _Net(3, 299)
    net.conv(32, 3, stride=2, padding=0).conv(32, 3, padding=0).conv(64, 3).pool(3, 2)
    net.conv(80, 1).conv(192, 3, padding=0).pool(3, 2)
    for pooled in (32, 64, 64):
        net.branches([(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], [(pooled, 1)])
    net.branches([(384, 3)], [(64, 1), (96, 3), (96, 3)], reduce=True)
    for c in (128, 160, 160, 192):
        seven = [(c, 1), (c, (1, 7)), (192, (7, 1))]
        twice = [(c, 1), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7))]
        net.branches([(192, 1)], seven, twice, [(192, 1)])
    net.branches([(192, 1), (320, 3)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)], reduce=True)
    for _ in range(2):
        fork = [(384, (1, 3)), (384, (3, 1))]  # two convolutions side by side on one input
        net.branches([(320, 1)], [(384, 1), fork], [(448, 1), (384, 3), fork], [(192, 1)])
    net.size = 1  # global average pooling
    return net.linear(1000).layers


NETWORKS = {
    "lenet5": lenet5,
    "alexnet": alexnet,
    "overfeat_fast": overfeat_fast,
    "vgg16": vgg16,
    "googlenet": googlenet,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "resnet152": resnet152,
    "inception_v3": inception_v3,
}


def _resnet(*blocks: int, late: bool = False) -> list[Layer]:
    net = _Net(3, 224)
    net.conv(64, 7, stride=2).pool(3, 2, padding=1)
    for stage, repeats in enumerate(blocks):
        width = 64 << stage
        for block in range(repeats):
            stride = 2 if stage and not block else 1
            if not block:
                net.shortcut(4 * width, stride)
            first, second = (1, stride) if late else (stride, 1)
            net.conv(width, 1, first).conv(width, 3, second).conv(4 * width, 1)
    net.size = 1  # global average pooling
    return net.linear(1000).layers


class _Net:
    """Square images of `channels` x `size` x `size` on their way through a network, and the layers they met."""

    def __init__(self, channels: int, size: int):
        self.channels, self.size = channels, size
        self.layers: list[Layer] = []

    def conv(self, channels, kernel, stride=1, padding=None, groups=1):
        rows, columns = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = max(rows, columns) // 2 if padding is None else padding  # "same" is the default
        size = (self.size + 2 * padding - max(rows, columns)) // stride + 1
        weights = channels * (self.channels // groups) * rows * columns
        self._add("conv", weights, weights * size * size, channels * size * size)
        self.channels, self.size = channels, size
        return self

    def linear(self, features):
        weights = self.channels * self.size**2 * features
        self._add("linear", weights, weights, features)
        self.channels, self.size = features, 1
        return self

    def pool(self, kernel, stride, padding=0):
        self.size = (self.size + 2 * padding - kernel) // stride + 1
        return self

    def shortcut(self, channels, stride):
        channels_in, size_in = self.channels, self.size
        self.conv(channels, 1, stride)
        self.channels, self.size = channels_in, size_in

    def branches(self, *paths, reduce=False):
        """Side by side on one input, outputs stacked; with `reduce` each path ends with stride 2, and pooling joins."""
        channels_in, size_in, out = self.channels, self.size, self.channels if reduce else 0
        for path in paths:
            self.channels, self.size = channels_in, size_in
            for i, step in enumerate(path):
                last = reduce and i == len(path) - 1
                self._step(step, {"stride": 2, "padding": 0} if last else {})
            out += self.channels
        self.channels = out

    def _step(self, step, options):
        fork = step if isinstance(step, list) else [step]
        channels_in = self.channels
        for channels, kernel in fork:
            self.channels = channels_in
            self.conv(channels, kernel, **options)
        self.channels = sum(channels for channels, _ in fork)

    def _add(self, kind, weights, macs, outputs):
        name = f"{kind}{sum(layer.name.startswith(kind) for layer in self.layers) + 1}"
        self.layers.append(Layer(name, weights, macs, self.channels * self.size**2, outputs))
