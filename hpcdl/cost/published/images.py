"""Images per second of one GPU, from the layers of a network alone."""

from collections.abc import Callable
from functools import partial

from hpcdl.cost.machines import Machine
from hpcdl.cost.published.data_parallel import IMAGENET, IMAGES_PER_SECOND
from hpcdl.cost.published.runs import Run
from hpcdl.cost.training import Layout, predict
from hpcdl.nn.networks import Layer, inception_v3, resnet50, resnet101, vgg16

PAGE = "TensorFlow and Horovod"
DGX = "V100 (DGX-1)"
Network = Callable[[], list[Layer]]


def images() -> list[Run]:
    """Training speeds that the data-parallel figures take as measured, and the lecture's own."""
    cases: tuple[tuple[str, str, Network, str, int, float, Layout], ...] = (
        ("Goyal et al. 2017", "ResNet-50 on a P100", resnet50, "P100", 32, 32 / 0.180, Layout()),
        (PAGE, "ResNet-101 on a P100", resnet101, "P100", 64, IMAGES_PER_SECOND["ResNet-101"], Layout()),
        (PAGE, "Inception V3 on a P100", inception_v3, "P100", 64, IMAGES_PER_SECOND["Inception V3"], Layout()),
        (PAGE, "VGG-16 on a P100", vgg16, "P100", 64, IMAGES_PER_SECOND["VGG-16"], Layout()),
        ("Lecture", "ResNet-50 on a P40", resnet50, "P40", 64, 218.0, Layout()),
        ("Lecture", "ResNet-50 on a V100", resnet50, DGX, 256, 1457.0, Layout(precision="fp16", itemsize=2)),
        ("Large batch", "ResNet-50 on each of 8 V100", resnet50, DGX, 32, 90 * IMAGENET / 1016 / 60 / 8, Layout()),
    )
    return [
        Run(
            source, f"{what}, images/s from its layers", figure, "", "layers", device,
            partial(_speed, network=network, batch=batch, layout=layout),
        )
        for source, what, network, device, batch, figure, layout in cases
    ]  # fmt: skip


def _speed(machine: Machine, network: Network, batch: int, layout: Layout) -> float:
    return batch / predict(network(), machine, layout, batch).seconds
