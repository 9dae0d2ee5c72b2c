"""The benchmarks run, and what they write names the machine and every competitor."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import hpcdl
from benchmarks import BENCHMARKS, __main__, load
from benchmarks.harness import pair, report, results, turns
from hpcdl.collectives import ALL_REDUCE

ROOT = Path(__file__).parents[2]
MACHINE = {"processor", "cores", "torch", "load", "time"}
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which would be measured for minutes")


def run(*command, **options) -> str:
    """What `python -m benchmarks` prints."""
    command = [sys.executable, "-m", "benchmarks", *map(str, command)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """What a benchmark's short run writes, and what it prints; each is run once."""
    folder, known = tmp_path_factory.mktemp("quick"), {}

    def once(name: str) -> tuple[dict, str]:
        if name not in known:
            file = folder / f"{name}.json"
            said = run(name, "--quick", "--out", file, env={**os.environ, "HPCDL_DATA": str(folder)})
            known[name] = json.loads(file.read_text()), said
        return known[name]

    return once


# -- the package ------------------------------------------------------------------------------------------------------


def test_every_benchmark_is_registered_and_every_result_is_of_one():
    modules = {path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert modules == set(BENCHMARKS)
    assert {path.stem for path in results.RESULTS.glob("*.json")} <= set(BENCHMARKS)


def test_the_registry_imports_none_before_it_is_asked_for():
    code = "import sys, benchmarks; print([name for name in sys.modules if name.startswith('benchmarks.')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert printed == "[]\n"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_says_what_it_measures_and_has_a_quick_form(name, capsys):
    module = load(name)
    assert f"python -m benchmarks {name}" in module.__doc__
    assert {"quick", "out"} <= set(module.main.__annotations__)
    with pytest.raises(SystemExit, match=r"^0$"):
        __main__.main([name, "--help"])
    shown = capsys.readouterr().out
    assert "--quick" in shown
    assert "<bool>" not in shown
    assert "--no-quick" not in shown


def test_options_of_one_benchmark_need_its_name(capsys):
    assert __main__.main(["--rounds", "3"]) == 2
    assert (
        capsys.readouterr().err
        == "Without a name the only option is --quick, not --rounds 3: name the benchmark first.\n"
    )


def test_an_unknown_name_is_answered_with_those_that_exist(capsys):
    assert __main__.main(["colectives"]) == 2
    assert (
        "no benchmark 'colectives'; the benchmarks are all_to_all, card, collectives, consistency,"
        in capsys.readouterr().err
    )


def test_all_of_them_run_even_when_one_fails(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(subprocess, "call", lambda command: asked.append(command[-2:]) or command[-2] == "ddp")
    assert __main__.main(["--quick"]) == 1
    assert asked == [[name, "--quick"] for name in BENCHMARKS]
    assert capsys.readouterr().err == "These benchmarks failed: ddp.\n"


def test_quick_figures_do_not_overwrite_those_that_are_quoted(tmp_path):
    assert results.file("ddp", quick=False, out=None) == ROOT / "benchmarks" / "results" / "ddp.json"
    assert results.RESULTS not in results.file("ddp", quick=True, out=None).parents
    assert results.file("ddp", quick=True, out=tmp_path / "x.json") == tmp_path / "x.json"


def test_ranks_that_fail_are_heard(monkeypatch, capfd):
    """Python does not know mpiexec's option, and says so."""
    monkeypatch.setattr(pair, "find_launcher", lambda: SimpleNamespace(path=sys.executable))
    with pytest.raises(RuntimeError, match="ended with exit code 2; what they printed last is above"):
        pair.run("benchmarks.ddp")
    assert "nknown option" in capfd.readouterr().err


def test_turns_rotate():
    assert [turns.rotated("abc", turn) for turn in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


@pytest.mark.parametrize("place", ["clone", "wheel"])
def test_hpcdl_bench_runs_them_from_a_clone_and_says_so_elsewhere(place, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from hpcdl.cli import app

    called = []
    monkeypatch.setattr(subprocess, "call", lambda command, env: called.append((command[1:], env["PYTHONPATH"])) or 0)
    if place == "wheel":
        monkeypatch.setattr(hpcdl, "__file__", str(tmp_path / "site-packages" / "hpcdl" / "__init__.py"))
    ended = CliRunner().invoke(app, ["bench", "ddp", "--quick"])
    if place == "wheel":
        assert (ended.exit_code, called) == (2, [])
        assert "No benchmarks here" in ended.stderr
        assert "clone of the repository" in ended.stderr
    else:
        [(command, path)] = called
        assert (ended.exit_code, command) == (0, ["-m", "benchmarks", "ddp", "--quick"])
        assert path.split(os.pathsep)[0] == str(ROOT)


# -- what was measured ------------------------------------------------------------------------------------------------


def test_the_page_of_benchmarks_says_what_the_results_say():
    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "run: python -m benchmarks.harness.report"


def test_results_name_the_machine_and_none_of_its_paths():
    for path in sorted(results.RESULTS.glob("*.json")):
        assert not re.search(r'"[^"]*(?<![\w:])/(home|root|tmp|usr|work|Users|opt)/', path.read_text()), path.name


# -- each of them, quickly --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in ("convolution_gpu", "grading")])
def test_a_quick_run_writes_what_the_page_shows(name, quick, tmp_path):
    found, _ = quick(name)
    assert set(next(report.machines(found))) >= MACHINE
    (tmp_path / f"{name}.json").write_text(json.dumps(found))
    assert f"## {name}\n" in report.section(tmp_path / f"{name}.json")


@pytest.mark.long
@pytest.mark.mpi
def test_the_collectives_are_measured_beside_their_peers(quick):
    found, said = quick("collectives")
    assert "mpi" in found["machine"]
    for tensor, sizes in (("plain", ["4", "65536", "4194304"]), ("shared", ["65536", "4194304"])):
        for malloc in ("default", "raised"):
            times = found["seconds"][tensor][malloc]
            assert set(times) == {*ALL_REDUCE, "MPI_Allreduce", "gloo"}
            assert all(list(column) == sizes for column in times.values())
    assert [row["what"].rsplit(", ")[-1] for row in found["promises"]] == 2 * ["plain tensor", "shared tensor"]
    assert found["simulator"][0]["messages"] == 2 * 255 * 256
    assert "kept" in said


@pytest.mark.long
def test_convolution_benchmark_adds_to_its_file(tmp_path):
    file = tmp_path / "convolution.json"
    for layer in ("ResNet 512@7", "ResNet 256@14"):
        options = ("--layers", layer, "--seconds", "0.1", "--out", file)
        run("convolution", *options, env={**os.environ, "HPCDL_DATA": str(tmp_path)})
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
def test_data_parallel_steps_are_measured_beside_their_peers(quick):
    found, said = quick("ddp")
    assert "mpi" in found["machine"]
    assert set(found["steps"]) == {"LeNet", "MLP", "ResNet"}
    for times in found["steps"].values():
        assert {"local", "two local", "torch DDP", "per tensor", "0.1 MB", "25 MB"} <= set(times)
    assert "Promises" in said


@pytest.mark.long
@pytest.mark.mpi
def test_model_parallel_benchmark_meets_predictions(quick):
    found, said = quick("parallel")
    assert {"local", "1F1B", "torch 1F1B", "torch ZBV", "block", "DTensor block", "ring attention"} <= set(
        found["steps"]
    )
    assert found["held"] == {"gpipe": [8, 8], "one_f_one_b": [2, 1], "zb_h1": [2, 2]}
    assert found["bytes"]["measured"] == found["bytes"]["predicted"] > 0
    assert all(row["predicted"] > 0 < row["measured"] for row in found["predicted"])
    assert found["scores"]["ratio"] < 0.4
    assert "Promises" in said


@pytest.mark.long
@pytest.mark.mpi
def test_the_trainer_is_measured_beside_a_bare_loop(quick):
    found, said = quick("trainer")
    assert set(found["meshes"]) == {"data=2", "data=2, sharding 3", "pipeline=2"}
    assert all(row["trainer"] and row["bare"] for row in found["meshes"].values())
    assert all(seconds > 0 < processor for seconds, processor in found["starts"])
    assert "The losses of both are the same" in said


@pytest.mark.long
@pytest.mark.mpi
def test_sharded_steps_are_measured_beside_torchs(quick):
    found, said = quick("sharding")
    assert set(found["networks"]) == {"MLP", "transformer"}
    for network in found["networks"].values():
        ours = {"two local", "ZeRO-1", "ZeRO-2", "ZeRO-3", "ZeRO-3, ahead"}
        assert ours | {"FSDP1", "FSDP2", "ZeroRedundancyOptimizer"} <= set(network["steps"])
        assert ("DeepSpeed ZeRO-3" in network["steps"]) != found["machine"]["DeepSpeed"].startswith("not installed")
    assert set(found["load onto 3 ranks"]) == {"hpcdl", "hpcdl, unchecked", "DCP", "hpcdl, DCP's files"}
    assert found["killed saves"]["whole"] == found["killed saves"]["kills"] == 5
    on_disk = found["states on disk"]
    assert set(on_disk["predicted"]) == set(on_disk["seconds"]) - {"in memory"}
    memory = [row["measured"] for row in found["promises"] if "memory" in row["what"]]
    assert memory == pytest.approx(6 * [1], abs=1e-5)  # Adam counts its steps, too: four bytes for each tensor
    assert "Promises" in said


@pytest.mark.long
def test_scaling_benchmark(quick):
    found, _ = quick("scaling")
    assert {"LARS", "LAMB", "torch SGD foreach", "torch AdamW foreach"} <= set(found["seconds"])
    for of in found["predicted"].values():
        assert all(seconds >= of["best"] for seconds in of.values())
    assert 0 < found["promises"][-1]["measured"] < 1, "seconds to find the best buckets of 200 layers"
    for rates in found["loader"]["images_per_second"].values():
        assert {"Loader", "Loader, processes", "PlainLoader", "DataLoader", "DataLoader of batches"} <= set(rates)
    beside = [row for row in found["loader"]["promises"] if "webdataset" in row["what"]]
    assert len(beside) == 2
    assert all(row["measured"] == "not installed" or row["measured"] > 0 for row in beside)


@pytest.mark.long
def test_stochastic_rounding_is_measured_beside_a_copy_and_its_peers(quick):
    found, _ = quick("rounding")
    for threads in ("1", "2"):
        seconds = found["threads"][threads]["seconds"]
        assert {"copy", "hpcdl BF16", "hpcdl fixed", "fallback BF16", "plain torch BF16"} <= set(seconds)
    for peer in ("torchao", "qtorch"):  # measured, or a sentence says why not
        assert any(name.startswith(peer) for name in seconds) != any(peer in line for line in found["absent"])
    assert isinstance(found["gpu"], dict) or found["gpu"].startswith("not measured")
    assert all(row["measured"] <= 16 for row in found["instructions of each element on sm_90"]["promises"])


@pytest.mark.long
def test_training_in_few_bits_is_measured_with_its_spread(quick):
    found, said = quick("low_precision")
    assert [(name, len(values)) for name, values in found["accuracies"].items()] == [
        ("float32", 1),
        ("nearest", 1),
        ("stochastic", 1),
    ]
    assert [row["promised"] for row in found["promises"]] == 3 * ["shown"] + [">= 20", "<= 2"]
    assert {"mean", "least", "most"} <= set(re.findall(r"\w+", said))


@pytest.mark.long
def test_pictures_are_drawn_sooner_than_in_matplotlibs_two_ways(quick):
    found, said = quick("pictures")
    assert len(found["milliseconds"]) == 2
    for times in found["milliseconds"].values():
        assert min(times["ours"]) < min(times["cleared"]) < 2 * min(times["anew"])
    assert "cleared" in said


@on_cpu
def test_without_a_gpu_its_benchmark_promises_and_measures_nothing():
    module = importlib.import_module("benchmarks.convolution_gpu")
    assert {row["measured"] for row in module.promises({})} == {None}
