"""The published runs of transformers, one call of `predict` each."""

from functools import partial
from typing import Any

from hpcdl.cost.blocks import Cut, layer, output
from hpcdl.cost.machines import Machine
from hpcdl.cost.published.runs import PublishedRun
from hpcdl.cost.published.transformers import KORTHIKANTI, MEGATRON, MEGATRON_2021
from hpcdl.cost.scaling import single
from hpcdl.cost.training import ADAM_BYTES, Layout, predict
from hpcdl.cost.work import Transformer

V100, A100, H100 = "V100 (DGX-2)", "A100 (Superpod)", "H100 (Grand Teton)"


def adam(data: int = 1, tensor: int = 1, pipeline: int = 1, **options: Any) -> Layout:
    """Return a layout for 16-bit training with Adam; more than one chunk means interleaving."""
    if options.get("chunks", 1) > 1:
        options = {"schedule": "interleaved"} | options
    return Layout(data, tensor, pipeline, precision="fp16", itemsize=2, update_bytes=ADAM_BYTES)._replace(**options)


def size(model: Transformer) -> str:
    """Return the kind of a run of this model, unless another part of the run is harder."""
    return "small transformer" if model.parameters < 2e9 else "transformer"


def speed(machine: Machine, model: Transformer, layout: Layout, batch: int) -> float:
    """Samples per second and rank."""
    return batch / predict(model, machine, layout, batch).seconds / layout.ranks


def teraflops(machine: Machine, model: Transformer, layout: Layout, batch: int) -> float:
    """10^12 operations per second and rank, with the layers' forward passes counted twice."""
    return model.flops(batch) / batch * speed(machine, model, layout, batch) / 1e12


# -- V100 -------------------------------------------------------------------------------------------------------------

ALONE = 39e12  # operations per second of the smallest model on one GPU, the reference for efficiencies


def megatron() -> list[PublishedRun]:
    """Shoeybi et al. 2019: weak scaling (batch 8 for each model), and strong scaling of the smallest."""
    runs = []
    for ways, figures in {1: (100, 96), 2: (95, 83), 4: (82, 79), 8: (77, 74)}.items():
        model = MEGATRON[ways]
        for data, figure in zip((1, 64), figures, strict=True):
            ranks = ways * data
            what = f"{model.parameters / 1e9:.1f} B parameters, efficiency, {ranks} GPU{'s' * (ranks > 1)}"
            value = partial(_efficiency, ways=ways, data=data)
            runs.append(PublishedRun("Megatron-LM", what, figure, "%", size(model), V100, value))
    for ways, gain in ((2, 1.64), (4, 2.34)):
        what = f"1.2 B parameters, speed of {ways} GPUs over 1"
        runs.append(PublishedRun("Megatron-LM", what, gain, "", size(MEGATRON[1]), V100, partial(_strong, ways=ways)))
    return runs


def _megatron_layout(ways: int, data: int) -> Layout:
    return adam(data, ways, recompute="full", kernels="eager", buckets=single, overlap=False)


def _efficiency(machine: Machine, ways: int, data: int) -> float:
    return 100e12 / ALONE * teraflops(machine, MEGATRON[ways], _megatron_layout(ways, data), 8 * data)


def _strong(machine: Machine, ways: int) -> float:
    alone, cut = (speed(machine, MEGATRON[1], _megatron_layout(t, 1), 8) for t in (1, ways))
    return ways * cut / alone


# -- A100 -------------------------------------------------------------------------------------------------------------

# Samples in a microbatch and chunks of a stage, from the scripts that the authors publish for table 1 of Narayanan et
# al. 2021 (NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh).
MICROBATCHES = {"1.7 B": (16, 1), "7.5 B": (16, 1), "39.1 B": (4, 1), "145.6 B": (2, 2), "529.6 B": (1, 3)}


def megatron_2021() -> list[PublishedRun]:
    """Narayanan et al. 2021: operations per second and GPU, recomputed ones included."""
    runs = []
    for name, (heads, hidden, layers, tensor, stages, ranks, batch, figure) in MEGATRON_2021.items():
        model, (samples, chunks) = Transformer(layers, hidden, 2048, 51200, heads), MICROBATCHES[name]
        layout = adam(
            ranks // tensor // stages, tensor, stages, microbatch=samples, chunks=chunks, recompute="full",
            overlap=stages == 1,
        )  # fmt: skip
        what, value = (
            f"{name} parameters on {ranks:,} GPUs",
            partial(teraflops, model=model, layout=layout, batch=batch),
        )
        runs.append(PublishedRun("Megatron 2021", what, figure, "TFLOP/s", size(model), A100, value))
    return runs


def korthikanti() -> list[PublishedRun]:
    """Korthikanti et al. 2022: seconds of an iteration (table 5), and milliseconds of a layer of 22 B (table 4)."""
    runs = []
    for name, (model, tensor, stages, batch, figures, _) in KORTHIKANTI.items():
        for how, figure in zip(("full", "selective"), figures, strict=True):
            layout = adam(
                1, tensor, stages, microbatch=1, recompute=how, sequence_parallel=how == "selective",
                chunks=3 if name == "175 B" else 1,
            )  # fmt: skip
            what, value = f"{name} parameters, iteration, recomputing {how}", partial(_seconds, model, layout, batch)
            runs.append(PublishedRun("Korthikanti", what, figure, "s", "transformer", A100, value))
    for what, cut, again, figure in (
        ("forward", False, None, 7.7), ("forward, sequence parallel", True, None, 7.2),
        ("backward", False, "nothing", 11.9), ("backward, sequence parallel", True, "nothing", 11.8),
        ("backward, recomputing full", False, "full", 19.5),
        ("backward, recomputing selective", False, "selective", 13.2),
        ("backward, selective, sequence parallel", True, "selective", 13.1),
    ):  # fmt: skip
        value = partial(_layer, cut=cut, again=again)
        runs.append(PublishedRun("Korthikanti", f"22 B, a layer's {what}", figure, "ms", "transformer", A100, value))
    return runs


def _seconds(model: Transformer, layout: Layout, batch: int, machine: Machine) -> float:
    return predict(model, machine, layout, batch).seconds


def _layer(machine: Machine, cut: bool, again: str | None) -> float:
    """Return the milliseconds of a layer on 8 GPUs, 4 samples: forward (None), or backward with recomputation."""
    model = Transformer(48, 6144, 2048, 51200, 64)
    one = layer(model, Cut(4, tensor=8, sequence_parallel=cut), machine.kernels("fp16"))
    forward = one.forward + 2 * machine.network.all_reduce(8)(4 * model.sequence * model.hidden * 2)
    if again is None:
        return 1e3 * forward
    backward = one.backward + forward - one.forward
    return 1e3 * (backward + {"nothing": 0.0, "selective": one.attention, "full": forward}[again])


def fsdp() -> list[PublishedRun]:
    """Zhao et al. 2023, PyTorch FSDP: a GPT of 175 B on 512 A100, and what prefetching gains (18 %)."""
    runs = []
    for samples, figure in ((1, 173), (2, 186)):
        what = f"175 B parameters on 512 GPUs, {samples} sequence{'s' * (samples > 1)} each"
        value = partial(teraflops, model=GPT_175B, layout=FSDP, batch=512 * samples)
        runs.append(PublishedRun("FSDP", what, figure, "TFLOP/s", "sharded", A100, value))
    what = "175 B parameters, speed with prefetching over without"
    return [*runs, PublishedRun("FSDP", what, 1.18, "", "sharded", A100, _prefetching)]


GPT_175B = Transformer(96, 12288, 2048, 50257, 96)
FSDP = adam(512, zero=3, recompute="full", kernels="eager")


def _prefetching(machine: Machine) -> float:
    with_it, without = (speed(machine, GPT_175B, FSDP._replace(prefetch=ahead), 512) for ahead in (True, False))
    return with_it / without


# Qi et al. 2024, table 3: layers, heads, hidden, stages, samples in a microbatch. Table 9: ms of F, B, W. Table 4:
# samples per GPU and second with 1F1B, 1F1B-I, ZB-1p by number of microbatches.
ZERO_BUBBLE = {
    "1.5 B": ((22, 24, 2304, 8, 6), (18.522, 18.086, 9.337), {
        24: (11.8, 13.1, 12.9), 32: (12.5, 13.4, 13.4), 64: (13.6, 13.9, 14.2),
    }),
    "6.2 B": ((30, 32, 4096, 8, 3), (29.718, 29.444, 19.927), {}),
    "14.6 B": ((46, 40, 5120, 16, 1), (11.347, 11.248, 8.132), {
        48: (1.40, 1.54, 1.61), 64: (1.49, 1.59, 1.67), 128: (1.64, 1.66, 1.76),
    }),
    "28.3 B": ((62, 48, 6144, 32, 1), (10.419, 10.207, 7.715), {}),
}  # fmt: skip


def zero_bubble() -> list[PublishedRun]:
    """Qi et al. 2024: F, B and W of a stage from only its sizes, and the throughput of three schedules."""
    runs = []
    for name, ((layers, heads, hidden, stages, samples), times, columns) in ZERO_BUBBLE.items():
        model = Transformer(layers, hidden, 1024, 50304, heads)
        for index, (part, figure) in enumerate(zip("FBW", times, strict=True)):
            value = partial(_stage_part, model=model, stages=stages, samples=samples, index=index)
            runs.append(
                PublishedRun(
                    "Zero Bubble", f"{name} parameters, {part} of a stage", figure, "ms", size(model), A100, value
                )
            )
        for m, figures in columns.items():
            for schedule, figure in zip(("one_f_one_b", "interleaved", "zb_h1"), figures, strict=True):
                chunks = 3 if schedule == "interleaved" else 1
                layout = adam(
                    1, 1, stages, microbatch=samples, chunks=chunks, schedule=schedule, kernels="eager", balanced=True
                )
                what = f"{name} parameters, samples/s per GPU, {schedule}, m = {m}, from sizes"
                value = partial(speed, model=model, layout=layout, batch=m * samples)
                runs.append(PublishedRun("Zero Bubble", what, figure, "", size(model), A100, value))
    return runs


def _stage_part(machine: Machine, model: Transformer, stages: int, samples: int, index: int) -> float:
    """Return the milliseconds of F, B or W of a mean stage."""
    cut, kernels = Cut(samples, kernels="eager"), machine.kernels("fp16")
    whole = model.layers * layer(model, cut, kernels)[index] + output(model, cut, kernels)[index]
    return 1e3 * whole / stages


# -- H100 -------------------------------------------------------------------------------------------------------------

LLAMA_8B = Transformer(32, 4096, 8192, 128256, 32, feedforward=14336, gated=True, kv_heads=8, untied=True)
LLAMA_405B = Transformer(126, 16384, 8192, 128256, 128, feedforward=53248, gated=True, kv_heads=8, untied=True)


def torchtitan() -> list[PublishedRun]:
    """torchtitan's page: Llama 3.1 of 8 B on 8 GPUs, and of 405 B on 512; tokens per GPU and second.

    Selective checkpointing there recomputes every second product: as much as half of the layers. With a pipeline,
    weights stay gathered.
    """
    runs = []
    for what, kernels, precision, figure in (
        ("", "eager", "fp16", 5762),
        (", compiled", "fused", "fp16", 6667),
        (", compiled, float8", "fused", "fp8", 8532),
    ):
        layout = adam(
            8, zero=3, recompute="full", recomputed=0.5, attention="flash", dropout=False, kernels=kernels,
            precision=precision,
        )  # fmt: skip
        value = partial(_tokens, model=LLAMA_8B, layout=layout, batch=16)
        runs.append(
            PublishedRun("torchtitan", f"8 B parameters on 8 GPUs{what}", figure, "tokens/s", "sharded", H100, value)
        )
    for schedule, chunks, figure in (("one_f_one_b", 1, 100), ("interleaved", 2, 128)):
        layout = adam(
            8, 8, 8, zero=2, microbatch=1, chunks=chunks, recompute="full", attention="flash", dropout=False,
            precision="fp8", sequence_parallel=True,
        )  # fmt: skip
        what = f"405 B parameters on 512 GPUs, {schedule}"
        value = partial(_tokens, model=LLAMA_405B, layout=layout, batch=256)
        runs.append(PublishedRun("torchtitan", what, figure, "tokens/s", "transformer", H100, value))
    return runs


def _tokens(machine: Machine, model: Transformer, layout: Layout, batch: int) -> float:
    return model.sequence * speed(machine, model, layout, batch)


def deepseek() -> list[PublishedRun]:
    """DeepSeek-V3: thousand GPU hours for 10^12 tokens on 2,048 H800; 64 ranks share the experts."""
    model = Transformer(
        61, 7168, 4096, 129280, 128, feedforward=2048, gated=True, untied=True, experts=256, active=9
    )  # fmt: skip
    layout = adam(
        128, 1, 16, zero=1, microbatch=1, schedule="zb_v", chunks=2, experts=64, expert_nodes=4, hide_experts=True,
        balanced=True, attention="flash", dropout=False, precision="fp8",
    )  # fmt: skip
    value = partial(_hours, model=model, layout=layout, batch=15360)
    return [
        PublishedRun(
            "DeepSeek-V3", "thousand GPU hours for 10^12 tokens, from sizes", 180, "", "experts", "H800", value
        )
    ]


def _hours(machine: Machine, model: Transformer, layout: Layout, batch: int) -> float:
    return 1e12 / _tokens(machine, model, layout, batch) / 3600 / 1e3


def transformer_runs() -> list[PublishedRun]:
    """Return all published runs of transformers."""
    return [*megatron(), *megatron_2021(), *korthikanti(), *zero_bubble(), *fsdp(), *torchtitan(), *deepseek()]
