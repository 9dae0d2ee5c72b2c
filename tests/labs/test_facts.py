"""Numbers that the labs' texts name are what their code computes."""

import itertools
import math
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch.nn import functional

from autograder.authors import build
from autograder.exercises.attention import block_work
from autograder.exercises.machines import hours, roofline
from hpcdl.consistency.gossip import shrinks
from hpcdl.conv import Problem
from hpcdl.cost import collectives, textbook
from hpcdl.data import digits
from hpcdl.nn.networks import resnet50, vgg16
from hpcdl.training.low_precision_runs import made_before
from hpcdl.widgets.pictures.stalling_sum import FORMATS, STEPS, TERMS, sums

SOURCE = Path(__file__).parents[2] / "labs" / "source"


def says(lab: str, *words: str) -> None:
    """The lab's text, whose lines may break anywhere, has these words."""
    (path,) = SOURCE.glob(f"*_{lab}.py")
    text = " ".join(path.read_text(encoding="utf-8").replace("\n#", " ").split())
    for sentence in words:
        assert sentence in text


def nearest(fmt: str, term: float) -> np.ndarray:
    return sums(FORMATS[fmt])[0][:, TERMS.index(term), 0]


def test_sums_stall_where_lab_06_says():
    says("stochastic_rounding", "the terms of 0.01 stop at 4, after 350 of them", "0.01 is 2.3 % too little")
    for term, stop in ((0.01, 4.0), (0.02, 8.0)):
        found = nearest("bfloat16", term)
        assert (found[349] < stop, found[350], found[-1]) == (True, stop, stop)
    assert not nearest("fixed point ⟨6, 4⟩", 0.01).any()
    assert 1 - nearest("fixed point ⟨6, 10⟩", 0.01)[-1] / (0.01 * STEPS) == pytest.approx(0.023, abs=5e-4)


def test_runs_in_fixed_point_end_as_lab_06_says():
    says("stochastic_rounding", "Up to $FL = 9$ nearest stays at chance, with 10 it trains", "(0.80 and 0.73 of the")
    last = {name: runs[0][-1].accuracy for name, runs in made_before().items()}
    assert all(last[f"16 {fl} nearest"] < 0.15 for fl in range(4, 10))
    assert all(last[f"16 {fl} stochastic"] > 0.95 for fl in range(4, 12))
    assert min(last[f"16 {fl} nearest"] for fl in (10, 11)) > 0.95
    assert [round(last[f"16 12 {mode}"], 2) for mode in ("nearest", "stochastic")] == [0.80, 0.73]
    assert max(last[f"16 {fl} {mode}"] for fl in (13, 14) for mode in ("nearest", "stochastic")) < 0.4
    assert round(6 * last["8 4 stochastic"]) == 5


def test_the_flat_ring_wins_where_lab_08_says():
    says(
        "collectives",
        "For 100 MB the flat ring is the better one up to 1,024 GPUs",
        "4,094 messages in a row for 2,048",
    )
    network, inside = (20e-6, 80e-12), (5e-6, 100e-12)
    for p in (64, 512, 1024, 2048):
        flat = max(collectives.ring(p, 102_400_000, *links) for links in (network, inside))
        nodes = collectives.hierarchical(p, 102_400_000, *network, per_node=8, within=inside)
        assert (flat < nodes) == (p <= 1024)


def test_one_server_takes_a_thousand_times_as_long():
    says("collectives", "1,024 ranks and 1 GB through one server, naive, takes a thousand times as long")
    machine = (1024, 2**30, 1e-6, 1e-10)
    assert 900 < collectives.naive(*machine) / collectives.rabenseifner(*machine) < 1100


def test_lab_08_prints_how_each_row_of_the_lectures_table_grows():
    for row, growths in textbook.COMPLEXITY.items():
        latency, nbytes = (growth.printed.replace("log", "\\log") for growth in growths)
        names = {"all_gather": "all-gather"}.get(row, row.replace("_", " "))
        (path,) = SOURCE.glob("*_collectives.py")
        (line,) = re.findall(rf"^# \| {names} \|.*$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert [cell.strip(" $") for cell in line.split("|")][3:5] == [f"O({latency})", f"O({nbytes})"]


def test_data_overtakes_weights_where_lab_04_says():
    says("backprop", "$W$ is 669,706 numbers, $D$ is 2,852 for each sample", "from 235 samples on")
    widths = (784, 512, 512, 10)
    weights = sum(n * m + m for n, m in itertools.pairwise(widths))
    data = widths[0] + 2 * sum(widths[1:])
    assert (weights, data) == (669_706, 2_852)
    assert 234 * data < weights < 235 * data


def test_tensors_are_what_lab_00_says():
    says("tensors", "(12 − 4) // 2 + 1 = 5 windows: 20 numbers to see, 12 in memory", "strides (2, 1)")
    windows = torch.arange(12).unfold(0, 4, 2)
    assert (tuple(windows.shape), windows.stride(), windows.numel()) == ((5, 4), (2, 1), 20)
    says("tensors", "16,777,217 is 2²⁴ + 1", "0.7 is stored as 0.699999988")
    assert (torch.tensor(16_777_217.0).item(), 2**24) == (16_777_216, 16_777_216)
    assert f"{torch.tensor(0.7).item():.9f}" == "0.699999988"
    says("tensors", "(3,) and (3, 1)", "0 times infinity is not a number", "Only the last. `x.T` exchanges")
    x = torch.arange(12).view(3, 4)
    assert (tuple(x[:, 1].shape), tuple(x[:, 1:2].shape)) == ((3,), (3, 1))
    assert torch.isnan(False * torch.tensor(torch.inf))
    assert x.T.reshape(3, 4).data_ptr() != x.data_ptr() == x.T.data_ptr() == x.view(4, 3).data_ptr()


def test_half_of_the_bits_read_as_many_digits_as_lab_00_says(capsys):
    says("tensors", "About 95 of 100 in both rows")
    code = build.code("tensors")
    namespace: dict = {}
    exec("\n".join([code[0], *build.references("tensors").values(), code[-1]]), namespace)
    shares = re.findall(r"(\d+\.\d) % of 359 held-out digits right", capsys.readouterr().out)
    assert [round(float(share)) for share in shares] == [95, 95]


def test_gossip_is_as_fast_as_the_lab_says():
    says(
        "consistency",
        "Four times: the gap of a ring is",
        "about 0.7 for *any* number of ranks",
        "about $\\frac{13}{p^2}$",
    )
    assert (1 - shrinks("ring", 32)) * 32**2 == pytest.approx(13, rel=0.02)
    assert (1 - shrinks("ring", 16)) / (1 - shrinks("ring", 32)) == pytest.approx(4, rel=0.03)
    assert all(0.65 < shrinks("random peers", p) < 0.71 for p in (8, 32, 1024))


def test_vgg_16_multiplies_as_often_as_lab_05_says():
    says("convolution", "15 billion multiplications for one image", "2.25 times fewer")
    macs = sum(layer.macs for layer in vgg16() if layer.name.startswith("conv"))
    assert (round(macs / 1e9), 36 / 16) == (15, 2.25)


def test_the_way_back_takes_what_lab_05_says():
    says("convolution", "takes **twice** the multiplications", "1,864 weights in all", "after 184 steps")
    assert math.prod((8, 1, 3, 3)) + math.prod((16, 8, 3, 3)) + 64 * 10 == 1_864
    assert 8 * math.ceil(len(digits().y) / 64) == 184
    there, images, filters = (
        Problem(N=1, C=256, H=56, W=56, K=256, R=3, S=3, padding=1),  # VGG-16's conv3_2
        Problem(N=1, C=256, H=56, W=56, K=256, R=3, S=3, padding=1),
        Problem(N=256, C=1, H=56, W=56, K=256, R=56, S=56, padding=1),
    )
    assert (images.x_shape, images.y_shape) == (there.y_shape, there.x_shape)
    assert filters.y_shape == (there.C, there.K, there.R, there.S)
    assert there.macs == images.macs == filters.macs


def test_equal_pixels_get_the_gradient_that_lab_05_says():
    says("convolution", "`torch.max` and `max_pool2d` take the first, `torch.amax` shares the gradient evenly")
    ways = {
        "max": lambda x: x.flatten(1).max(1).values,
        "max_pool2d": lambda x: functional.max_pool2d(x, 2),
        "amax": lambda x: x.amax((1, 2)),
    }
    backs = {}
    for name, way in ways.items():
        x = torch.ones(1, 2, 2, requires_grad=True)
        way(x).sum().backward()
        backs[name] = x.grad.flatten().tolist()
    first = [1, 0, 0, 0]
    assert backs == {"max": first, "max_pool2d": first, "amax": [0.25] * 4}


@pytest.mark.labs("it trains two networks on the digits")
@pytest.mark.parametrize(("yours", "epochs"), [("conv_im2col", 8), ("conv_direct", 1), ("conv_fft", 1)])
def test_digits_are_read_through_a_students_convolution_as_lab_05_says(yours, epochs, capsys):
    says("convolution", "About 95 % of the held-out digits", "agree to less than 10⁻¹²", "the same curve")
    code, namespace = build.code("convolution"), {}
    exec("\n".join([code[0], *build.references("convolution").values()]), namespace)
    for start in ("yours = conv_im2col", "class MaxPool", "def network"):
        (cell,) = [cell for cell in code if cell.lstrip().startswith(start)]
        cell = cell.replace("yours = conv_im2col", f"yours = {yours}").replace("EPOCHS = 8", f"EPOCHS = {epochs}")
        exec(cell, namespace)
    plt.close("all")
    held_out, apart = (namespace["history"][name] for name in ("held_out", "apart"))
    assert len(held_out) == epochs + 1
    assert held_out[-1] == pytest.approx(0.95 if epochs == 8 else 0.62, abs=0.006)
    assert 0 < apart < 1e-12
    printed = capsys.readouterr().out
    found = [float(number) for number in re.findall(r"d[xw] (\d\S*e-\d+)", printed)]
    assert len(found) == 8
    assert max(found) < 1e-12
    assert f"{yours}: " in printed


def test_a_training_takes_the_hours_that_the_lab_says():
    says("machines", "take 6.5 hours at the peak and 7.8 at their roofs", "add 11.3 hours", "19.1 of the 22 hours")
    layers = [(layer.weights, layer.macs, layer.inputs + layer.outputs) for layer in resnet50()]
    between = [
        row
        for layer in resnet50()[:-1]
        for row in ((2 * layer.outputs, 0, 3 * layer.outputs), (0, 0, 2 * layer.outputs))
    ]
    setting = 256, 1_280_000, 90, (112e12, 900e9, 2), 1457.0
    alone, whole = hours.exact(layers, *setting), hours.exact(layers + between, *setting)
    assert [round(alone[kind], 1) for kind in ("arithmetic", "roof")] == [6.5, 7.8]
    assert (round(whole["roof"], 1), round(whole["roof"] - alone["roof"], 1)) == (19.1, 11.3)
    assert round(whole["measured"]) == 22


def test_the_disks_deliver_what_lab_15_says():
    seconds = 1.28e6 / 27_500
    assert round(seconds) == 47
    assert round(180 / seconds, 1) == 3.9
    says("scaling", "those 180 GB pass in 47 s, so the disks must deliver 3.9 GB per second")


def test_no_batch_brings_narrow_layers_to_the_ridge():
    says("machines", "it reaches no ridge at any batch", "does not reach the ridge either")
    pointwise, depthwise = (256 * 256, 256 * 256 * 196, 2 * 256 * 196), (9 * 256, 9 * 256 * 196, 2 * 256 * 196)
    for peak, bandwidth, itemsize in ((15.7e12, 900e9, 4), (125e12, 900e9, 2)):
        assert roofline.searched(depthwise, peak, bandwidth, itemsize) == math.inf
        assert roofline.searched(pointwise, peak, bandwidth, itemsize) == (1 if itemsize == 4 else math.inf)


def test_scores_take_over_where_the_lab_on_attention_says():
    says("attention", "which is 1,536 tokens", "which is 73,728")
    h, heads = 12_288, 96
    counts = {n: block_work.counted(1, n, 96, 2) for n in (12 * 48, 6 * 96)}  # a smaller block: n = 12 d, and 6 h
    weights, _, kept = counts[12 * 48]
    assert kept == 2 * 12 * (12 * 48) * 96
    assert counts[6 * 96][1] == 2 * 2 * (6 * 96) * weights
    assert (12 * h // heads, 6 * h) == (1536, 73_728)


def test_a_block_has_two_thirds_of_its_weights_in_up_and_down():
    says("attention", "has two thirds of its weights")
    assert block_work.counted(1, 1, 6, 1)[0] * 2 == (4 + 4) * 6**2 * 3
