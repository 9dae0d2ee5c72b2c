"""Transformers: ZeRO, Megatron-LM, recomputation, ring attention, a trillion tokens."""

from scipy.optimize import brentq

from hpcdl.cost import memory
from hpcdl.cost.machines import A100_SUPERPOD, V100_DGX2
from hpcdl.cost.published.row import USABLE, Row
from hpcdl.cost.scaling import single
from hpcdl.cost.sequence_parallel import least_block, least_sequence
from hpcdl.cost.training import ADAM_BYTES, Layout, predict, train_seconds, utilization
from hpcdl.cost.work import Transformer

DAY = 86400


def zero() -> list[Row]:
    """Rajbhandari et al. 2020: memory of each GPU."""
    published = (120, 31.4, 16.6, 1.9)
    return [  # rounded as the paper prints them
        Row("ZeRO", f"7.5 B parameters, 64 GPUs, divided: {what}", gigabytes, round(ours / 1e9, 1), "GB", 0)
        for what, gigabytes, ours in zip(
            memory.STAGES, published, (memory.zero(7.5e9, 64, stage) for stage in range(4)), strict=True
        )
    ]


# Shoeybi et al. 2019, Megatron-LM: table 1 by number of ranks that share a model; speed of one GPU in training.
MEGATRON = {
    1: Transformer(layers=40, hidden=1536, sequence=1024, vocabulary=51200),
    2: Transformer(layers=54, hidden=1920, sequence=1024, vocabulary=51200),
    4: Transformer(layers=64, hidden=2304, sequence=1024, vocabulary=51200),
    8: Transformer(layers=72, hidden=3072, sequence=1024, vocabulary=51200),
}
MEGATRON_RATE = 39e12  # operations per second


def megatron(usable: float = USABLE) -> list[Row]:
    """Weak scaling on DGX-2 servers, with and without data parallelism."""
    published = {1: (100, 96), 2: (95, 83), 4: (82, 79), 8: (77, 74)}

    def seconds(ways, data, share):
        machine = V100_DGX2.reaching(share, usable, usable)
        layout = Layout(data, ways, recompute="full", precision="fp16", itemsize=2, buckets=single, overlap=False)
        return predict(MEGATRON[ways], machine, layout, 8 * data).seconds

    alone = MEGATRON[1].flops(8) / MEGATRON_RATE
    share = brentq(lambda share: seconds(1, 1, share) - alone, 0.1, 1.0)
    rows = []
    for ways, model in MEGATRON.items():
        linear = model.flops(8) / ways / MEGATRON_RATE
        for data, figure in zip((1, 64), published[ways], strict=True):
            ranks = ways * data
            what = f"{model.parameters / 1e9:.1f} B parameters, efficiency, {ranks} GPU{'s' * (ranks > 1)}"
            efficiency = 100 * linear / seconds(ways, data, share)
            rows.append(Row("Megatron-LM", what, figure, efficiency, "%", limit=8, fitted=ranks == 1))
    return rows


# Narayanan et al. 2021, table 1: heads, hidden, layers, tensor, pipeline, GPUs, batch, TFLOP/s per GPU.
MEGATRON_2021 = {
    "1.7 B": (24, 2304, 24, 1, 1, 32, 512, 137),
    "7.5 B": (32, 4096, 36, 4, 1, 128, 512, 142),
    "39.1 B": (64, 8192, 48, 8, 2, 512, 1536, 138),
    "145.6 B": (96, 12288, 80, 8, 8, 1536, 2304, 148),
    "529.6 B": (128, 20480, 105, 8, 35, 2520, 2520, 163),
}


def megatron_2021() -> list[Row]:
    """Narayanan et al. 2021: operations per second and GPU, recomputed ones included; and days for a 175 B model."""

    def rate(name, share):
        heads, hidden, layers, tensor, stages, ranks, batch, _ = MEGATRON_2021[name]
        model = Transformer(layers, hidden, 2048, 51200, heads)
        layout = _adam(ranks // tensor // stages, tensor, stages, recompute="full", overlap=False)
        return model.flops(batch) / ranks / predict(model, _a100(share), layout, batch).seconds / 1e12

    share = brentq(lambda share: rate("7.5 B", share) - MEGATRON_2021["7.5 B"][-1], 0.3, 1.0)
    limits = {"1.7 B": None, "7.5 B": 0}
    days = train_seconds(175e9, 300e9, 1024, 140e12, recompute="full") / DAY
    return [
        *(
            Row(
                "Megatron 2021", f"{name} parameters on {row[5]:,} GPUs", row[-1], rate(name, share),
                "TFLOP/s", limits.get(name, 8), fitted=name == "7.5 B",
            )
            for name, row in MEGATRON_2021.items()
        ),
        Row("Megatron 2021", "175 B parameters, 300 B tokens, 1,024 GPUs", 34, days, "days", 1),
    ]  # fmt: skip


# Korthikanti et al. 2022, table 3: the models, tensor, pipeline and batch; table 5: seconds of an iteration with full
# and with selective recomputation, and the utilizations of the latter in percent.
KORTHIKANTI = {
    "175 B": (Transformer(96, 12288, 2048, 51200, 96), 8, 8, 64, (18.13, 13.75), (51.4, 52.8)),
    "1 T": (Transformer(128, 25600, 2048, 51200, 160), 8, 64, 512, (94.42, 71.49), (56.3, 57.0)),
}


def korthikanti() -> list[Row]:
    """Korthikanti et al. 2022: memory saved, utilization from the printed seconds, and the seconds themselves."""
    model, *_ = KORTHIKANTI["175 B"]
    kept, less = (
        memory.activations(2048, 1, model.hidden, model.heads, recompute=what) for what in ("nothing", "selective")
    )
    rows = [
        Row(
            "Korthikanti",
            "175 B parameters, activations saved by selective",
            70,
            round(100 - 100 * less / kept),
            "%",
            0,
        )
    ]
    for name, (model, tensor, stages, batch, seconds, printed) in KORTHIKANTI.items():
        found = utilization(model, batch, seconds[1], tensor * stages, 312e12, "selective")
        rows.append(
            Row("Korthikanti", f"{name} parameters, model utilization", printed[0], 100 * found.model, "%", 0.1)
        )
        rows.append(
            Row("Korthikanti", f"{name} parameters, hardware utilization", printed[1], 100 * found.hardware, "%", 1)
        )
    share = brentq(lambda share: _iteration("175 B", "full", share) - 18.13, 0.3, 1.0)
    for name, (*_, seconds, _) in KORTHIKANTI.items():
        for how, figure in zip(("full", "selective"), seconds, strict=True):
            fitted = (name, how) == ("175 B", "full")
            what = f"{name} parameters, iteration, recomputing {how}"
            limit = 0 if fitted else 10
            rows.append(Row("Korthikanti", what, figure, _iteration(name, how, share), "s", limit, fitted))
    return rows


def _iteration(name, recompute, share) -> float:
    model, tensor, stages, batch, *_ = KORTHIKANTI[name]
    layout = _adam(1, tensor, stages, recompute=recompute, sequence_parallel=recompute == "selective")
    return predict(model, _a100(share), layout, batch).seconds


def _a100(share):
    return A100_SUPERPOD.reaching(share, USABLE, USABLE)


def _adam(data, tensor, pipeline, **options):
    """16-bit training with Adam, one sequence in each microbatch, 1F1B."""
    return Layout(
        data, tensor, pipeline, microbatch=1, precision="fp16", itemsize=2, update_bytes=ADAM_BYTES, **options
    )


def ring_attention() -> list[Row]:
    """Liu et al. 2023, table 2: the least block and sequence in thousands of tokens, from TFLOP/s and links' GB/s."""
    published = {
        "A100, NVLink": (312, 300, 1.0, 6.2),
        "TPU v3": (123, 112, 1.1, 6.6),
        "TPU v4": (275, 268, 1.0, 6.2),
        "TPU v5e": (196, 186, 1.1, 6.3),
    }
    return [
        Row(
            "Ring attention",
            f"{name}, least {what}",
            figure,
            round(least(peak * 1e12, link * 1e9) / 1e3, 1),
            "k tokens",
            0,
        )
        for name, (peak, link, *figures) in published.items()
        for what, least, figure in zip(("block", "sequence"), (least_block, least_sequence), figures, strict=True)
    ]


def deepseek() -> list[Row]:
    """DeepSeek-V3: days for a trillion tokens on 2,048 GPUs, from its 180,000 GPU hours; hours for 14.8 trillion."""
    hours = 180e3
    return [
        Row("DeepSeek-V3", "days for 10^12 tokens on 2,048 GPUs", 3.7, round(hours / 2048 / 24, 1), "days", 0),
        Row("DeepSeek-V3", "thousand GPU hours for 14.8 x 10^12 tokens", 2664, hours * 14.8 / 1e3, "", 0),
    ]
