"""What large batches need: steps of LARS and LAMB beside other optimizers', the best buckets, and images in time.

    python -m benchmarks scaling            # a minute; writes benchmarks/results/scaling.json
    python -m benchmarks scaling --quick    # seconds: to see that it works, not to be quoted
    python -m benchmarks scaling --only-loader    # only the loaders again; the other figures stay

The optimizers take turns that rotate, on ResNet-50's parameters: 25.5 million in 162 tensors. pytorch-optimizer is
measured where it is installed. Buckets are those of `hpcdl.cost.scaling` on ResNet-50's gradients, 0.13 s of backward
and 16 ranks: seconds are predicted by the ring's cost, not measured. Loaders bring epochs of raw images from warm files
to a training that does nothing: ours, torch's, and webdataset's where it is installed, each with two workers.
"""

import functools
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import loading, results
from benchmarks.harness.machine import describe
from benchmarks.harness.turns import rotated, seconds
from hpcdl.cost.collectives import ring
from hpcdl.cost.scaling import Gradient, capped, finished, fused, gradients, layerwise, merged, single
from hpcdl.nn.networks import resnet50
from hpcdl.training.large_batch import LAMB, LARS

LINKS = {"1 Gb/s": 1e9 / 8, "10 Gb/s": 10e9 / 8}  # bytes per second
ALPHA, RANKS, BACKWARD, FORWARD = 50e-6, 16, 0.13, 0.065  # seconds per message, ranks, seconds
SOLVED_WITHIN = 0.05  # seconds to find the best buckets of 200 layers


def parameters(scale: float = 1.0) -> list[torch.Tensor]:
    """ResNet-50's weights, each with a scale and a shift behind it, and gradients for all."""
    generator = torch.Generator().manual_seed(0)
    shapes = [shape for layer in resnet50() for shape in ((int(layer.weights * scale) // 64, 64), (256,), (256,))]
    params = [torch.randn(shape, generator=generator).mul_(0.1) for shape in shapes]
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator).mul_(0.01)
    return params


def optimizers(params: list[torch.Tensor]) -> dict[str, Callable[[], object]]:
    """Return a step of each, by name; all work on the same parameters."""
    found: dict[str, Callable[[], object]] = {
        "LARS": LARS(params, 1e-4).step,
        "LAMB": LAMB(params, 1e-4).step,
        "torch SGD foreach": torch.optim.SGD(params, 1e-4, momentum=0.9, weight_decay=1e-4, foreach=True).step,
        "torch AdamW foreach": torch.optim.AdamW(params, 1e-4, foreach=True).step,
    }
    if importlib.util.find_spec("pytorch_optimizer"):
        peer = importlib.import_module("pytorch_optimizer")
        found["pytorch-optimizer LARS"] = peer.LARS(params, 1e-4, weight_decay=1e-4).step
        found["pytorch-optimizer LAMB"] = peer.Lamb(params, 1e-4, weight_decay=0.01).step
    return found


def compete(quick: bool) -> dict[str, list[float]]:
    """Seconds of a step of each optimizer."""
    steps = optimizers(parameters(0.02 if quick else 1.0))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(3 if quick else 31):
        for name in rotated(steps, turn):
            taken = seconds(steps[name])
            if turn:  # the first turn makes the states
                times[name].append(taken)
    return times


def optimizer_promises(times: dict[str, list[float]]) -> list[dict]:
    """Return what was asked of the optimizers beside the peers that were measured."""
    middle = {name: statistics.median(taken) for name, taken in times.items()}
    pairs = [("LARS", "torch SGD foreach", 0.7), ("LAMB", "torch AdamW foreach", "shown")]
    pairs += [(name, f"pytorch-optimizer {name}", 3.0) for name in ("LARS", "LAMB")]
    return [
        {"what": f"{name}, steps/s beside {peer}", "promised": asked, "measured": middle[peer] / middle[name]}
        for name, peer, asked in pairs
        if peer in middle
    ]


def mg_wfbp(gradients: list[Gradient], all_reduce: Callable[[int], float]) -> list[Gradient]:
    """Merge a bucket with the next gradient where waiting for that costs less than a message's start-up (Shi 2019)."""
    start_up, free, bucket = all_reduce(0), 0.0, gradients[0]
    done: list[Gradient] = []
    for gradient in gradients[1:]:
        start = max(free, bucket.ready)
        if gradient.ready < start + start_up:
            bucket = Gradient(gradient.ready, bucket.nbytes + gradient.nbytes)
        else:
            done, free, bucket = [*done, bucket], start + all_reduce(bucket.nbytes), gradient
    return [*done, bucket]


RULES: dict[str, Callable] = {
    "best": merged,
    "MG-WFBP": mg_wfbp,
    "DDP, 25 MB": capped,
    "Horovod, 64 MB": fused,
    "by layer": layerwise,
    "one": single,
}


def iterations() -> dict[str, dict[str, float]]:
    """By link and rule the seconds of an iteration."""
    layers, found = gradients(resnet50(), BACKWARD), {}
    for link, rate in LINKS.items():
        all_reduce = functools.partial(ring, RANKS, alpha=ALPHA, beta=1 / rate)
        found[link] = {name: FORWARD + finished(rule(layers, all_reduce), all_reduce) for name, rule in RULES.items()}
    return found


def bucket_promises(found: dict[str, dict[str, float]]) -> list[dict]:
    """Return the best buckets beside each rule's, and how long it takes to find them."""
    rows = [
        {"what": f"{link}: the best buckets beside {name}", "promised": "1, never less", "measured": taken / of["best"]}
        for link, of in found.items()
        for name, taken in of.items()
        if name != "best"
    ]
    all_reduce = functools.partial(ring, RANKS, alpha=ALPHA, beta=1e-9)
    layers = [Gradient(1e-3 * i, 4 * (1 + i * i % 4096)) for i in range(200)]
    begin = time.process_time()
    merged(layers, all_reduce)
    taken = time.process_time() - begin
    what = "the best buckets of 200 layers, seconds to find them, less than"
    return [*rows, {"what": what, "promised": SOLVED_WITHIN, "measured": taken}]


def loaders(quick: bool) -> dict:
    """Images/s of loaders, and what was asked of ours."""
    machine = describe()
    counts = {"28x28": 512, "224x224": 128} if quick else {"28x28": 20_000, "224x224": 1536}
    rates = {size: loading.race(size, count, turns=1 if quick else 5) for size, count in counts.items()}
    late = loading.late_steps(counts["224x224"])
    return {"machine": machine, "images_per_second": rates, "promises": loading.promises(rates, late)}


def main(
    quick: Annotated[bool, typer.Option(help="Two turns of small tensors.")] = False,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
    only_loader: Annotated[bool, typer.Option(help="Measure loaders; keep what the file says of the others.")] = False,
) -> None:
    """Time steps of LARS and LAMB, compare rules for buckets, and race loaders."""
    file, machine = results.file("scaling", quick, out), describe()
    if only_loader:
        return results.save(json.loads(file.read_text(encoding="utf-8")) | {"loader": loaders(quick)}, file)
    times, predicted = compete(quick), iterations()
    shown = Table("optimizer", "ms", title="A step over ResNet-50's parameters: min / median")
    for name, taken in times.items():
        shown.add_row(name, f"{1e3 * min(taken):.1f} / {1e3 * statistics.median(taken):.1f}")
    Console().print(shown)
    promises = [*optimizer_promises(times), *bucket_promises(predicted)]
    findings = {"machine": machine, "seconds": times, "predicted": predicted, "promises": promises}
    results.save(findings | {"loader": loaders(quick)}, file)
