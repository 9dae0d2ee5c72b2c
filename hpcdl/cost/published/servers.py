"""Parameter servers: Poseidon, Caffe, PipeDream's synchronous SGD, and torch's RPC as measured here."""

from hpcdl.cost import factors, work
from hpcdl.cost.machines import P100, TCP
from hpcdl.cost.published.pipelines import VGG16_MS
from hpcdl.cost.published.row import USABLE, Row
from hpcdl.cost.scaling import layerwise, single
from hpcdl.cost.topology import STAGING, Link, ParameterServers
from hpcdl.cost.training import Layout, predict
from hpcdl.nn.networks import Layer, total, vgg16

GIGABIT = 1e9 / 8
BATCH, ALONE = 32, 18.5 / 20  # images on each node, and seconds of an iteration on one


def vgg19_22k() -> list[Layer]:
    """Return VGG-19 with 21,841 classes: VGG-16 with one more convolution in each of the last three groups."""
    layers = vgg16()
    convolutions = [*layers[:7], layers[6], *layers[7:10], layers[9], *layers[10:13], layers[12]]
    classes = 21841
    return [*convolutions, *layers[13:15], Layer("linear3", 4096 * classes, 4096 * classes, 4096, classes)]


def poseidon() -> list[Row]:
    """Zhang et al. 2017, Poseidon: VGG19-22K on up to 32 nodes, seconds per 20 iterations; 18.5 on one node alone.

    Linear layers' gradients are sent as factors during the backward pass; every node computes the others' products, at
    the rate of its own.
    """
    layers = vgg19_22k()
    rate = work.training_flops(layers, BATCH) / ALONE

    def seconds(p: int) -> float:
        machine = P100._replace(network=ParameterServers(p, _ethernet(40), 0.0), seen=True)
        again = factors.operations(layers, p, BATCH) / rate
        passes = ALONE / 3, 2 * ALONE / 3 + again
        layout = Layout(data=p, buckets=layerwise)
        return 20 * predict(factors.sent(layers, p, BATCH), machine, layout, BATCH * p, measured=passes).seconds

    return [
        Row("Poseidon", f"VGG19-22K, 20 iterations on {p} nodes", published, seconds(p), "s", kind="measured")
        for p, published in ((2, 18.9), (4, 19.3), (8, 19.4), (16, 19.7), (32, 20.1))
    ]


def caffe() -> list[Row]:
    """Predict Caffe with parameter servers: whole layers on each server, nothing sent before the backward pass ends."""
    layers = vgg19_22k()

    def seconds(p: int) -> float:
        network = ParameterServers(p, _ethernet(40), STAGING, largest=fullest(layers, p))
        machine = P100._replace(network=network, seen=True)
        passes = ALONE / 3, 2 * ALONE / 3
        if p == 1:  # the server is on the node: only staging
            return 20 * (ALONE + STAGING * 4 * total(layers, "weights"))
        return 20 * predict(layers, machine, Layout(data=p, buckets=single), BATCH * p, measured=passes).seconds

    return [
        Row(
            "Poseidon", f"VGG19-22K, 20 iterations on {p} node{'s' * (p > 1)}, Caffe with parameter servers", published,
            seconds(p), "s", 0 if p == 1 else None, fitted=p == 1, kind="servers",
        )
        for p, published in ((1, 34.5), (2, 36.8), (4, 50.3), (8, 68.5), (16, 105), (32, 134))
    ]  # fmt: skip


def fullest(layers: list[Layer], servers: int) -> float:
    """Return the share of weights on the fullest server if layers go, largest first, to the emptiest server."""
    held = [0] * servers
    for weights in sorted((layer.weights for layer in layers), reverse=True):
        held[held.index(min(held))] += weights
    return max(held) / sum(held)


def pipedream() -> list[Row]:
    """Harlap et al. 2018, table 1: VGG-16 with synchronous SGD and parameter servers on 4 and 8 machines."""
    forward, backward = (sum(column) / 1e3 for column in zip(*VGG16_MS, strict=True))

    def seconds(p: int) -> float:
        machine = P100._replace(network=ParameterServers(p, Link(TCP, 8 / 25e9).reaching(USABLE), STAGING), seen=True)
        layout = Layout(data=p, buckets=single)
        return predict(vgg16(), machine, layout, 64 * p, measured=(forward, backward)).seconds

    return [
        Row(
            "PipeDream", f"VGG-16, synchronous SGD on {p}", speed, p * (forward + backward) / seconds(p), kind="servers"
        )
        for p, speed in ((4, 1.47), (8, 2.35))
    ]


def torch_rpc() -> list[Row]:
    """Return a parameter server by torch's RPC on one machine: 16.8 MB each way, ms; computing takes 15.0 ms.

    Two ranks, each a worker and a server of half the weights. The link is gloo between processes on that machine: 64 MB
    each way in 35.6 ms.
    """
    layer = [Layer("linear", 4 * 1024 * 1024, 4 * 1024 * 1024, 1024, 1024)]
    network = ParameterServers(2, Link(134e-6 / 2, 35.564e-3 / 64e6), STAGING)
    machine = P100._replace(network=network, seen=True)
    ours = predict(layer, machine, Layout(data=2, buckets=single), 64, measured=(0.005, 0.010)).seconds
    return [Row("Measured here", "parameter server by torch's RPC, 16.8 MB", 40.6, 1e3 * ours, "ms", kind="servers")]


def _ethernet(gigabits: float) -> Link:
    return Link(TCP, 1 / (gigabits * GIGABIT)).reaching(USABLE)
