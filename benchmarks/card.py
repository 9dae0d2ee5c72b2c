"""Predictions of `hpcdl.cost` on one GPU, beside what its training then takes; nothing without a GPU.

    python -m benchmarks card                        # two minutes
    python -m benchmarks card --quick                # one model of each kind: to see that it works, not to be quoted

The constants of `hpcdl.cost` are fitted to public figures alone, so no figure here was seen before it was predicted.
Steps are those of a usual program: weights in float32, products in bfloat16 by autocast, AdamW or SGD in one kernel,
flash attention, nothing compiled. Products of matrices are timed by themselves. The smallest model waits for its host:
its seconds, by its kernels as torch.profiler counts them, are those that the host needs for each.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from benchmarks.harness import results
from benchmarks.harness.machine import describe
from hpcdl.cost.kernels import Product, product_seconds
from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import Machine
from hpcdl.cost.reached import Prediction
from hpcdl.cost.training import ADAM_BYTES, MOMENTUM_BYTES, predict
from hpcdl.cost.work import Transformer
from hpcdl.nn.decoder import Decoder
from hpcdl.nn.networks import resnet50_v1_5
from hpcdl.training.hybrid.work import machine_of

NOT_MEASURED = "not measured: no GPU"
BF16 = Layout(precision="bf16", itemsize=2, kernels="eager")
FLASH = BF16._replace(update_bytes=ADAM_BYTES, attention="flash", dropout=False)
IMAGES = BF16._replace(update_bytes=MOMENTUM_BYTES, channels_last=True)
TRANSFORMERS = {  # name -> model, samples
    "10 M, nanoGPT's letters": (Transformer(6, 384, 256, 65, 6), 64),
    "124 M, GPT-2": (Transformer(12, 768, 1024, 50304, 12), 16),
    "350 M": (Transformer(24, 1024, 1024, 50304, 16), 8),
    "774 M, GPT-2 large": (Transformer(36, 1280, 1024, 50304, 20), 8),
    "1.3 B": (Transformer(24, 2048, 2048, 50304, 16), 4),
    "2.7 B": (Transformer(32, 2560, 2048, 50304, 32), 2),
}
RESNET = (16, 64, 256)  # samples
SIDES = (256, 512, 1024, 2048, 4096, 8192)
PRODUCTS = [
    *(Product(side, side, side) for side in SIDES),
    *(Product(tokens, 4 * h, h) for tokens in (64, 1024, 16384) for h in (768, 2048, 5120)),
    *(Product(h, 4 * h, tokens) for tokens in (1024, 16384) for h in (768, 2048)),
    Product(16384, 50304, 768),
]


def transformer_step(model: Transformer, samples: int) -> Callable[[], object]:
    """Return one step of AdamW on random tokens, with hpcdl's decoder."""
    net = Decoder(model.vocabulary, model.hidden, model.heads, model.layers, tied=True).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    tokens, wanted = torch.randint(model.vocabulary, (2, samples, model.sequence), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = cross_entropy(net(tokens).flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def resnet_step(samples: int) -> Callable[[], object]:
    """Return one step of SGD on random images, with torchvision's ResNet-50, channels last."""
    from torchvision.models import resnet50

    torch.backends.cudnn.benchmark = True
    net = resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    images = torch.randn(samples, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    wanted = torch.randint(1000, (samples,), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = cross_entropy(net(images), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def trainings(machine: Machine, quick: bool) -> Iterator[tuple[str, Prediction, Callable[[], object]]]:
    """Yield each training's name, its prediction, and a step, which is made when the one before is gone."""
    for name, (model, samples) in list(TRANSFORMERS.items())[: 1 if quick else None]:
        if 16 * model.parameters > 0.7 * machine.memory:
            continue
        what = f"{name}: {samples} x {model.sequence} tokens"
        yield what, predict(model, machine, FLASH, samples), transformer_step(model, samples)
    for samples in RESNET[: 1 if quick else None] if find_spec("torchvision") else ():
        what = f"ResNet-50 v1.5: {samples} images"
        yield what, predict(resnet50_v1_5(), machine, IMAGES, samples), resnet_step(samples)


def seconds(call: Callable[[], object], rounds: int) -> float:
    """Return the median seconds of a call, by events on the device, after calls that warm up."""
    taken = []
    for turn in range(rounds + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        taken += [begin.elapsed_time(end) / 1e3] * (turn >= 3)
    return statistics.median(taken)


def kernels_of(step: Callable[[], object]) -> int:
    """Return how many kernels a step launches; copies and fills count, too."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        step()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in recorded.events())


def of_host(rounds: int) -> dict:
    """Return the microseconds that the host needs for each kernel of the smallest model."""
    name, (model, samples) = next(iter(TRANSFORMERS.items()))
    step = transformer_step(model, samples)
    taken, count = seconds(step, rounds), kernels_of(step)
    what = f"{name}: host, µs for each of {count} kernels"
    return {"what": what, "promised": "shown", "measured": round(1e6 * taken / count, 1)}


def of_trainings(machine: Machine, quick: bool, rounds: int) -> list[dict]:
    """Return each training's interval in ms, and what it took."""
    rows = []
    for what, predicted, step in trainings(machine, quick):
        taken = seconds(step, rounds)
        inside = predicted.low <= taken <= predicted.high
        asked = f"{1e3 * predicted.seconds:.3g} ms ({1e3 * predicted.low:.3g} to {1e3 * predicted.high:.3g})"
        peak = torch.cuda.max_memory_allocated() / 1e9
        rows.append({"what": what, "promised": asked, "measured": f"{1e3 * taken:.3g} ms", "inside": inside,
                     "error": predicted.seconds / taken - 1, "kind": predicted.kind, "peak_gb": peak})  # fmt: skip
        del step
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return rows


def of_products(machine: Machine, quick: bool, rounds: int) -> list[dict]:
    """Predicted and measured rates of products in bfloat16, in TFLOP/s; operands of 4 GiB take turns in the caches."""
    kernels = machine.usual("bf16").kernels("bf16")
    rows = []
    for product in PRODUCTS[:: 6 if quick else 1]:
        m, n, k = int(product.m), int(product.n), int(product.k)
        sets = max(1, min(64, 2**28 // (2 * (m * k + k * n + m * n))))
        pairs = [[torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (k, n))]
                 for _ in range(sets)]  # fmt: skip
        outs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]

        def call(pairs=pairs, outs=outs):
            for (a, b), out in zip(pairs, outs, strict=True):
                torch.mm(a, b, out=out)

        taken, predicted = seconds(call, rounds) / sets, product_seconds(product, kernels) + kernels.gap
        rows.append({"product": [m, n, k], "measured": product.flops / taken / 1e12,
                     "predicted": product.flops / predicted / 1e12, "error": predicted / taken - 1})  # fmt: skip
    return rows


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One model of each kind, three rounds.")] = False,
    rounds: Annotated[int, typer.Option(help="Measured steps of each model.")] = 20,
    out: Annotated[Path | None, typer.Option(help="The JSON file.")] = None,
) -> None:
    """Predict trainings on this machine's GPU, and measure them."""
    console = Console()
    if not torch.cuda.is_available():
        console.print(f"Predictions on a GPU: {NOT_MEASURED}")
        return
    machine = machine_of("cuda")
    if machine is None:
        console.print(f"Predictions on a GPU: not measured: hpcdl.cost has no {torch.cuda.get_device_name()}")
        return
    rounds = 3 if quick else rounds
    rows, products = of_trainings(machine, quick, rounds), of_products(machine, quick, rounds)
    table = Table("training", "predicted", "measured", "error", "inside", title=f"On {torch.cuda.get_device_name()}")
    for row in rows:
        table.add_row(
            row["what"], row["promised"], row["measured"], f"{row['error']:+.0%}", "yes" if row["inside"] else "NO"
        )
    second = Table("product", "measured TFLOP/s", "predicted", "error", title="Products in bfloat16")
    for row in products:
        cells = "{} x {} x {}".format(*row["product"]), f"{row['measured']:.0f}", f"{row['predicted']:.0f}"
        second.add_row(*cells, f"{row['error']:+.0%}")
    console.print(table, second)
    typical = statistics.median(abs(math.log1p(row["error"])) for row in products)
    kept = [
        *rows,
        of_host(rounds),
        {"what": "products: median error", "promised": "shown", "measured": math.expm1(typical)},
    ]
    out = results.file("card", quick, out)
    about = describe() | {"gpu": torch.cuda.get_device_name(), "predicted_as": machine.name}
    results.save({"machine": about, "promises": kept, "products": products}, out)
    console.print(f"All measurements: {out}")
