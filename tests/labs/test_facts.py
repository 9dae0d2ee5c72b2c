"""Numbers that the labs' texts name are what their code computes."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from autograder.authors import build
from hpcdl.cost import collectives
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
