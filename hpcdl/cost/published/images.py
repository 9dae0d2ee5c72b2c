"""Images per second of one GPU, from the layers of a network alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hpcdl.cost.machines import FITTED_SHARE, PCIE_3, Machine
from hpcdl.cost.published.data_parallel import IMAGENET, IMAGES_PER_SECOND, horovod_network
from hpcdl.cost.published.row import SPREAD, Row
from hpcdl.cost.published.runs import PublishedRun
from hpcdl.cost.scaling import fused
from hpcdl.cost.training import Layout, predict
from hpcdl.nn.networks import (
    Layer,
    alexnet_tower,
    inception_v3,
    resnet50,
    resnet50_v1_5,
    resnet101,
    resnet152,
    vgg16,
)

DGX = "V100 (DGX-1)"
SGD = 12  # bytes that an update moves for each weight: read the weight and its gradient, write the weight
Network = Callable[[], list[Layer]]

# TensorFlow's benchmark page, last version (tensorflow/docs, site/en/r1/guide/performance/benchmarks.md, May 2017):
# images per second of one GPU, synthetic data, on a P100 of a DGX-1 and a K80 of Google's, by batch. None: not printed.
# Weights were on the host, as the page says, except for AlexNet and VGG-16 on the P100. These two have no
# normalizations.
HOST: dict[str, Any] = {"offload": PCIE_3 * FITTED_SHARE}
TENSORFLOW: tuple[tuple[str, Network, str, int, float | None, float | None], ...] = (
    ("Inception V3", inception_v3, "eager", 64, 142, 30.5),
    ("Inception V3", inception_v3, "eager", 32, 128, 29.3),
    ("ResNet-50", resnet50, "eager", 64, 219, 51.9),
    ("ResNet-50", resnet50, "eager", 32, 195, 49.5),
    ("ResNet-152", resnet152, "eager", 64, 91.8, None),
    ("ResNet-152", resnet152, "eager", 32, 82.7, 20.0),
    ("AlexNet", alexnet_tower, "fused", 512, 2987, 656),
    ("VGG-16", vgg16, "fused", 64, 154, None),
    ("VGG-16", vgg16, "fused", 32, 144, 35.4),
)

# NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets (README of resnet50v1.5, configs.yml), one GPU.
NVIDIA = (
    (DGX, "fp32", 112, 367),
    (DGX, "fp16", 256, 1200),
    ("A100 (Superpod)", "tf32", 256, 938),
    ("A100 (Superpod)", "fp16", 256, 2470),
)


def images() -> list[PublishedRun]:
    """Training speeds of one GPU; some of them the data-parallel figures take as measured."""
    runs = []
    for name, network, kernels, batch, *figures in TENSORFLOW:
        for device, figure in zip(("P100", "K80"), figures, strict=True):
            if figure:
                what = f"{name} on a {device}, batch {batch}"
                weights = {"update_bytes": SGD} if (device, kernels) == ("P100", "fused") else HOST
                runs.append(_run("TensorFlow", what, network, device, batch, figure, kernels=kernels, **weights))
    for device, precision, batch, figure in NVIDIA:
        what = f"ResNet-50 v1.5 on {'an' if device[0] == 'A' else 'a'} {device[:4]}, {precision}"
        last = {"channels_last": precision == "fp16"}
        runs.append(_run("NVIDIA", what, resnet50_v1_5, device, batch, figure, precision, **last))
    half = {"kernels": "fused", "channels_last": True}
    return [
        *runs,
        PublishedRun(
            "Horovod", "ResNet-101 on each of 16 P100, images/s from its layers", IMAGES_PER_SECOND["ResNet-101"], "",
            "layers", "P100", _horovod, "fp32",
        ),
        _run("Lecture", "ResNet-50 on a P40, batch 64", resnet50, "P40", 64, 218.0),
        _run("Lecture", "ResNet-50 on a V100, batch 256", resnet50, DGX, 256, 1457.0, "fp16", **half),
    ]  # fmt: skip


def to_the_end() -> list[Row]:
    """Speeds that others derive from longer times, with more in them than layers: no constant is fitted to these."""
    rows = []
    for source, what, device, figure in (
        ("Goyal et al. 2017", "ResNet-50 on a P100", "P100", 32 / 0.180),
        ("Large batch", "ResNet-50 on each of 8 V100", DGX, 90 * IMAGENET / 1016 / 60 / 8),
    ):
        run = _run(source, f"{what}, batch 32", resnet50, device, 32, figure)
        rows.append(Row(run.source, run.what, run.published, run.predicted(), kind=run.kind))
    return rows


def _horovod(machine: Machine) -> float:
    """Horovod's own example: 16 GPUs on 4 servers."""
    machine = machine._replace(network=horovod_network())
    layout = Layout(data=16, buckets=fused, kernels="eager", update_bytes=SGD)
    return 64 / predict(resnet101(), machine, layout, 64 * 16, spread=SPREAD).seconds


def _run(
    source: str, what: str, network: Network, device: str, batch: int, figure: float, precision: str = "fp32",
    **options: Any,
) -> PublishedRun:  # fmt: skip
    options = {"kernels": "eager", "precision": precision, "itemsize": 2 if precision == "fp16" else 4} | options
    value = partial(_speed, network=network, batch=batch, layout=Layout(**options))
    return PublishedRun(source, f"{what}, images/s from its layers", figure, "", "layers", device, value, precision)


def _speed(machine: Machine, network: Network, batch: int, layout: Layout) -> float:
    return batch / predict(network(), machine, layout, batch).seconds
