"""Data-parallel training of convolution networks."""

from scipy.optimize import brentq

from hpcdl.cost.machines import P40, P100, RDMA, TCP, TPU_V3
from hpcdl.cost.published.row import SPREAD, USABLE, Row
from hpcdl.cost.scaling import fused, layerwise
from hpcdl.cost.topology import Link, Nodes, tcp
from hpcdl.cost.training import Layout, predict, time_to_train
from hpcdl.nn.networks import inception_v3, resnet50, resnet101, vgg16

GIGABIT = 1e9 / 8
FP16_MANTISSA = 10  # bits
IMAGENET = 1.28e6
IMAGES_PER_SECOND = {  # on one P100, batch 64
    "Inception V3": 142,  # TensorFlow's benchmark page in its last version, May 2017, synthetic data
    "ResNet-101": 1656.82 / 16,  # Horovod's benchmark page, 16 GPUs
    "VGG-16": 154,  # TensorFlow's page, as above
}


def goyal(spread: float = SPREAD) -> list[Row]:
    """Goyal et al. 2017: ResNet-50 on 8 to 256 P100."""
    machine = P100.reaching(links=USABLE)
    assert isinstance(machine.network, Nodes)  # of a P100
    machine = machine._replace(network=machine.network._replace(algorithm="rabenseifner", pipelined=True))

    def iteration(p):
        layout = Layout(data=p, buckets=layerwise)
        return predict(resnet50(), machine, layout, 32 * p, measured=(0.060, 0.120), spread=spread).seconds

    efficiency = 100 * iteration(8) / iteration(256)
    return [
        Row("Goyal et al. 2017", "ResNet-50, efficiency, 8 to 256 GPUs", 90, efficiency, "%", kind="measured"),
        Row(
            "Goyal et al. 2017",
            "ResNet-50, iteration on 256 GPUs (derived)",
            0.256,
            iteration(256),
            "s",
            kind="measured",
        ),
    ]


def horovod(spread: float = SPREAD, images_per_second: dict[str, float] = IMAGES_PER_SECOND) -> list[Row]:
    """Horovod's benchmark page: three networks on 512 Pascal GPUs."""
    machine = P100._replace(network=horovod_network(), seen=True)
    networks = {"Inception V3": (inception_v3, 90), "ResNet-101": (resnet101, 90), "VGG-16": (vgg16, 68)}
    rows = []
    for name, (layers, published) in networks.items():
        batch = 64 / images_per_second[name]
        alone, together = (
            predict(
                layers(), machine, Layout(data=p, buckets=fused), 64 * p, measured=_thirds(batch), spread=spread
            ).seconds
            for p in (1, 512)
        )
        rows.append(
            Row("Horovod", f"{name}, efficiency, 512 GPUs", published, 100 * alone / together, "%", kind="measured")
        )
    return rows


def horovod_network() -> Nodes:
    """4 GPUs to a server; within it the ring is no slower than between servers, so the link there does not matter."""
    return Nodes(4, Link(0.0, 0.0), _ethernet(25), pipelined=True)


def case_study() -> list[Row]:
    """Predict the lecture's ResNet-50 on 1,024 and 2,048 P40, 8 to a node, 100 Gb/s (Jia et al. 2018).

    One GPU reaches 218 images/s, and 90 epochs took 8.7 minutes, not the slide's 7.8: see the audit in lab `scaling`.
    The batch is at most 65,536, so 2,048 GPUs have 32 images each.
    """
    machine = P40._replace(network=Nodes(8, Link(0.0, 0.0), _ethernet(100), pipelined=True), seen=True)
    speed = {
        p: batch
        * p
        / predict(
            resnet50(),
            machine,
            Layout(data=p, buckets=fused, itemsize=2),
            batch * p,
            measured=_thirds(batch / 218),
            spread=SPREAD,
        ).seconds
        for p, batch in ((8, 64), (1024, 64), (2048, 32))
    }
    efficiency = 100 * speed[1024] / speed[8] / 128
    return [
        Row("Lecture", "ResNet-50, efficiency, 8 to 1,024 GPUs", 99.2, efficiency, "%", kind="measured"),
        Row(
            "Lecture",
            "ResNet-50, speed of 2,048 GPUs over 1,024",
            8.7 / 6.6,
            speed[2048] / speed[1024],
            kind="measured",
        ),
    ]


def lecture_counts() -> list[Row]:
    """Return the lecture's ResNet-50: 11.7 G multiply-adds for an image, 1.28 million images, a V100 of 112 TFLOP/s."""
    epoch = 2 * 11.7e9 * IMAGENET
    least = round(90 * epoch / 112e12 / 3600, 1)
    return [
        Row("Lecture", "ResNet-50, TFLOP of an epoch", 30000, round(epoch / 1e12, -3), "", 0),
        Row("Lecture", "ResNet-50, least hours of 90 epochs on a V100", 6.7, least, "h", 0),
        Row(
            "Lecture", "ResNet-50, hours of 90 epochs at 1,457 images/s", 22,
            round(time_to_train(1 / 1457, 1, IMAGENET, epochs=90) / 3600), "h", 0,
        ),
    ]  # fmt: skip


def nccl_over_tcp() -> list[Row]:
    """NCCL's all-reduce over TCP, GB/s of bus bandwidth by connections between two nodes (NVIDIA/nccl on GitHub).

    Issue 209 (2019): NCCL 2.3.7, 32 Gb/s, 1 to 8 rings; one ring fixes what a host takes for each byte. Issue 450
    (2021): 4 channels over 100 Gb/s between four machines of 8 V100, "between 4 and 6 GB/s".
    """
    runs = ((32, 1, 2.06, None), (32, 2, 2.77, 5), (32, 4, 3.28, 5), (32, 8, 3.75, 5), (100, 4, 6.0, None))
    return [
        Row(
            "NCCL over TCP", f"{gigabits} Gb/s, {n} ring{'s' * (n > 1)}", figure,
            1 / tcp(gigabits * GIGABIT, TCP, n).beta / 1e9, "GB/s", 0 if n == 1 else limit, fitted=n == 1,
        )
        for gigabits, n, figure, limit in runs
    ]  # fmt: skip


def large_batch() -> list[Row]:
    """Return the ResNet-50 of Haiku's examples, 32 images on each core of a TPU v3, minutes to the end."""
    machine = TPU_V3.reaching(links=USABLE)

    def minutes(cores, iteration):
        layout = Layout(data=cores)
        step = predict(resnet50(), machine, layout, 32 * cores, measured=_thirds(iteration), spread=SPREAD).seconds
        return time_to_train(step, 32 * cores, IMAGENET, epochs=90) / 60

    published = {32: 130, 128: 33, 1024: 5}
    alone = brentq(lambda seconds: minutes(32, seconds) - published[32], 1e-3, 1.0)
    return [
        Row(
            "Large batch",
            f"ResNet-50, {cores} TPU v3 cores, batch {32 * cores:,}",
            figure,
            minutes(cores, alone),
            "min",
            0 if cores == 32 else None,
            fitted=cores == 32,
            kind="measured",
        )
        for cores, figure in published.items()
    ]


def micikevicius() -> list[Row]:
    """Micikevicius et al. 2018: the ratio of a weight to its update above which FP16 loses the update."""
    gap = 2.0**-FP16_MANTISSA  # between 1 and the next number; 1 plus half of it rounds to 1, which is even
    return [Row("Micikevicius et al. 2018", "weight over update, lost from there on in FP16", 2048, 2 / gap, limit=0)]


def _thirds(seconds: float) -> tuple[float, float]:
    """Forward and backward, which takes twice as long."""
    return seconds / 3, seconds * 2 / 3


def _ethernet(gigabits: float) -> Link:
    return Link(RDMA, 1 / (gigabits * GIGABIT)).reaching(USABLE)
