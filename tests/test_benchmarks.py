"""The benchmarks run, and what they write names the machine and every competitor."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcdl.collectives import ALL_REDUCE

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(*command, **options) -> str:
    """What the benchmark prints."""
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=250, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def quick(name: str, folder: Path) -> tuple[dict, str]:
    """What the benchmark's short run writes, and what it prints."""
    file = folder / f"{name}.json"
    said = run(BENCHMARKS / f"{name}.py", "--quick", "--out", file)
    return json.loads(file.read_text()), said


def test_the_page_of_benchmarks_says_what_the_results_say(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import report

    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "run: python benchmarks/report.py"


@pytest.mark.long
@pytest.mark.mpi
def test_the_collectives_are_measured_beside_their_peers(tmp_path):
    found, said = quick("collectives", tmp_path)
    assert {"processor", "cores", "torch", "mpi", "load", "time"} <= set(found["machine"])
    for tensor, sizes in (("plain", ["4", "65536", "4194304"]), ("shared", ["65536", "4194304"])):
        for malloc in ("default", "raised"):
            times = found["seconds"][tensor][malloc]
            assert set(times) == {*ALL_REDUCE, "MPI_Allreduce", "gloo"}
            assert all(list(column) == sizes for column in times.values())
    assert [row["what"].rsplit(", ")[-1] for row in found["promises"]] == 2 * ["plain tensor", "shared tensor"]
    assert found["simulator"][0]["messages"] == 2 * 255 * 256
    assert "kept" in said


@pytest.mark.long
def test_convolutions_are_measured_beside_torch_and_added_to_what_was_measured(tmp_path):
    file = tmp_path / "convolution.json"
    for layer in ("ResNet 512@7", "ResNet 256@14"):
        options = ("--layers", layer, "--seconds", "0.1", "--out", file)
        run(BENCHMARKS / "convolution.py", *options, env={**os.environ, "HPCDL_DATA": str(tmp_path)})
    found = json.loads(file.read_text())
    assert set(found) == {"1", "2"}
    for part in found.values():
        assert list(part["layers"]) == ["ResNet 256@14", "ResNet 512@7"]
        for row in part["layers"].values():
            assert {"torch", "torch channels_last", "winograd_4x4", "fft + filters", "auto"} <= set(row["times"])
            assert {"processor", "torch", "load"} <= set(row["machine"])
            assert all(competitor["error"] < 3e-5 for competitor in row["times"].values())
    assert (tmp_path / "convolution-2.png").stat().st_size > 10_000


@pytest.mark.long
@pytest.mark.mpi
def test_data_parallel_steps_are_measured_beside_their_peers(tmp_path):
    found, said = quick("ddp", tmp_path)
    assert {"processor", "cores", "torch", "mpi", "load", "time"} <= set(found["machine"])
    assert set(found["steps"]) == {"LeNet", "MLP", "ResNet"}
    for times in found["steps"].values():
        assert {"local", "two local", "torch DDP", "per tensor", "0.1 MB", "25 MB"} <= set(times)
    assert "Promises" in said


@pytest.mark.long
def test_stochastic_rounding_is_measured_beside_a_copy_and_its_peers(tmp_path):
    found, _ = quick("rounding", tmp_path)
    assert {"processor", "cores", "torch", "load", "time"} <= set(found["machine"])
    for threads in ("1", "2"):
        seconds = found["threads"][threads]["seconds"]
        assert {"copy", "hpcdl BF16", "hpcdl fixed", "fallback BF16", "plain torch BF16"} <= set(seconds)
    for peer in ("torchao", "qtorch"):  # measured, or a sentence says why not
        assert any(name.startswith(peer) for name in seconds) != any(peer in line for line in found["absent"])
    assert isinstance(found["gpu"], dict) or found["gpu"].startswith("not measured")
    assert all(row["measured"] <= 16 for row in found["instructions of each element on sm_90"]["promises"])


@pytest.mark.long
def test_training_in_few_bits_is_measured_with_its_spread(tmp_path):
    found, said = quick("low_precision", tmp_path)
    assert [(name, len(values)) for name, values in found["accuracies"].items()] == [
        ("float32", 1),
        ("nearest", 1),
        ("stochastic", 1),
    ]
    assert [row["promised"] for row in found["promises"]] == 3 * ["shown"] + [">= 20", "<= 2"]
    assert {"mean", "least", "most"} <= set(re.findall(r"\w+", said))


def test_results_name_the_machine_and_none_of_its_paths():
    for path in sorted((BENCHMARKS / "results").glob("*.json")):
        assert not re.search(r'"[^"]*(?<![\w:])/(home|root|tmp|usr|work|Users|opt)/', path.read_text()), path.name


@pytest.mark.long
def test_pictures_are_drawn_sooner_than_in_matplotlibs_two_ways(tmp_path):
    found, said = quick("pictures", tmp_path)
    assert len(found["milliseconds"]) == 2
    for times in found["milliseconds"].values():
        assert min(times["ours"]) < min(times["cleared"]) < 2 * min(times["anew"])
    assert "cleared" in said
