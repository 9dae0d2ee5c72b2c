"""The kernels of a network's layers: convolutions as products, and the algorithms that libraries choose from."""

from itertools import pairwise

import pytest

from hpcdl.cost.kernels import Kernels, Product, tiled_seconds
from hpcdl.cost.layers import FFT_TILES, MOVES, network_seconds, sizes
from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import A100_SUPERPOD, P100, V100_DGX1
from hpcdl.cost.training import predict
from hpcdl.nn.networks import NETWORKS, Layer, alexnet_tower, lenet5, resnet50, resnet50_v1_5, total, vgg16

ROOMY = Kernels(1e13, 1e30, processors=1, tensor=False)  # nothing but operations
VECTOR, TENSOR = Kernels(1e13, 1e30, processors=8, tensor=False), Kernels(1e13, 1e30, processors=8)
SAME = Layer("conv", 512 * 512 * 9, 512 * 512 * 9 * 784, 512 * 784, 512 * 784)  # 3 x 3 on 28 x 28


@pytest.mark.parametrize("name", NETWORKS)
def test_a_convolution_is_its_implicit_product(name):
    for part in NETWORKS[name]():
        positions, channels, taken = sizes(part)
        assert positions * channels == part.outputs
        assert positions * channels * taken == part.macs
        assert channels * taken == part.weights


@pytest.mark.parametrize("layers", [vgg16, lenet5, resnet50_v1_5])
def test_one_processor_does_every_operation(layers):
    """Forward 2 MACs, backward twice as many, except for the first layer's inputs."""
    network, samples = layers(), 8
    forward, backward = network_seconds(network, ROOMY, Layout(), samples)
    macs = samples * total(network, "macs")
    assert forward == pytest.approx(2 * macs / 1e13)
    assert backward == pytest.approx(2 * (2 * macs - samples * network[0].macs) / 1e13)


def conv_seconds(part, kernels, samples=64):
    return network_seconds([part], kernels, Layout(), samples)[0]


def test_winograd_saves_products_without_tensor_cores():
    direct = tiled_seconds(Product(64 * 784, 512, 512 * 9), 0.0, VECTOR)
    assert direct / 4.2 < conv_seconds(SAME, VECTOR) < direct / 2.2
    assert conv_seconds(SAME, TENSOR) == pytest.approx(tiled_seconds(Product(64 * 784, 512, 512 * 9), 0.0, TENSOR))
    narrow = SAME._replace(outputs=SAME.outputs // 4, macs=SAME.macs // 4)  # stride 2
    assert conv_seconds(narrow, VECTOR) == pytest.approx(direct / 4, rel=0.05)


def test_transforms_that_move_too_much_are_not_chosen():
    """With a slow memory only the algorithm in one kernel is faster than the product itself."""
    slow = VECTOR._replace(bandwidth=1e11)
    fused = tiled_seconds(Product(64 * 14 * 14, 512, 512, 16), 0.0, slow)
    assert conv_seconds(SAME, slow) == pytest.approx(fused + MOVES["fused"][0] * 64 * 4 * SAME.outputs / 1e11, rel=0.01)


def test_large_filters_are_transformed():
    seven = Layer("conv", 64 * 64 * 49, 64 * 64 * 49 * 3136, 64 * 3136, 64 * 3136)
    direct = tiled_seconds(Product(64 * 3136, 64, 64 * 49), 0.0, VECTOR)
    tile = max(FFT_TILES)
    assert conv_seconds(seven, VECTOR) < direct / 3
    assert conv_seconds(seven, VECTOR) > direct * 4 * (tile // 2 + 1) * tile / 49 / (tile - 6) ** 2 / 1.1


def test_tensor_cores_want_channels_last():
    kept, turned = (
        predict(resnet50(), A100_SUPERPOD, Layout(precision="fp16", itemsize=2, channels_last=last), 64)
        for last in (True, False)
    )
    moved = 2 * 64 * 2 * (total(resnet50(), "inputs") + total(resnet50(), "outputs"))
    once = moved / A100_SUPERPOD.usual().bandwidth
    assert turned.forward - kept.forward == pytest.approx(once, rel=0.01)
    same = {predict(resnet50(), P100, Layout(channels_last=last), 64).seconds for last in (True, False)}
    assert len(same) == 1, "without tensor cores nothing is transposed"


def test_small_networks_are_bound_by_launches():
    one, many = (predict(lenet5(), V100_DGX1, Layout(kernels="eager"), batch).seconds for batch in (1, 32))
    assert one == many == pytest.approx(5 * (3 + 4) * 1e-5)


def test_smaller_batches_are_no_faster_per_image():
    for network in (alexnet_tower, resnet50, vgg16):
        each = [predict(network(), P100, Layout(), batch).seconds / batch for batch in (1, 8, 64, 512, 65_536)]
        assert all(after <= before * 1.02 for before, after in pairwise(each)), network


def test_a_host_that_updates_weights_costs_the_way_there_and_back():
    offloaded = predict(resnet50(), P100, Layout(offload=1e10), 64)
    assert offloaded.optimizer == pytest.approx(2 * 4 * total(resnet50(), "weights") / 1e10)
