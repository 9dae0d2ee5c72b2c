"""Transformers: ZeRO, Megatron-LM, recomputation, ring attention, a trillion tokens."""

from hpcdl.cost import memory
from hpcdl.cost.machines import A100_DGX
from hpcdl.cost.published.row import Row
from hpcdl.cost.sequence_parallel import least_block, least_sequence
from hpcdl.cost.training import train_seconds, utilization
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


# Shoeybi et al. 2019, Megatron-LM: table 1 by number of ranks that share a model.
MEGATRON = {
    1: Transformer(layers=40, hidden=1536, sequence=1024, vocabulary=51200, heads=16),
    2: Transformer(layers=54, hidden=1920, sequence=1024, vocabulary=51200, heads=20),
    4: Transformer(layers=64, hidden=2304, sequence=1024, vocabulary=51200, heads=24),
    8: Transformer(layers=72, hidden=3072, sequence=1024, vocabulary=51200, heads=32),
}

# Narayanan et al. 2021, table 1: heads, hidden, layers, tensor, pipeline, GPUs, batch, TFLOP/s per GPU.
MEGATRON_2021 = {
    "1.7 B": (24, 2304, 24, 1, 1, 32, 512, 137),
    "7.5 B": (32, 4096, 36, 4, 1, 128, 512, 142),
    "39.1 B": (64, 8192, 48, 8, 2, 512, 1536, 138),
    "145.6 B": (96, 12288, 80, 8, 8, 1536, 2304, 148),
    "529.6 B": (128, 20480, 105, 8, 35, 2520, 2520, 163),
}


def megatron_days() -> list[Row]:
    """Narayanan et al. 2021: days for a model of 175 B parameters by the rule of 8 T P / (n X)."""
    days = train_seconds(175e9, 300e9, 1024, 140e12, recompute="full") / DAY
    return [Row("Megatron 2021", "175 B parameters, 300 B tokens, 1,024 GPUs", 34, days, "days", 1)]


# Korthikanti et al. 2022, table 3: the models, tensor, pipeline and batch; table 5: seconds of an iteration with full
# and with selective recomputation, and the utilizations of the latter in percent.
KORTHIKANTI = {
    "175 B": (Transformer(96, 12288, 2048, 51200, 96), 8, 8, 64, (18.13, 13.75), (51.4, 52.8)),
    "1 T": (Transformer(128, 25600, 2048, 51200, 160), 8, 64, 512, (94.42, 71.49), (56.3, 57.0)),
}


def korthikanti() -> list[Row]:
    """Korthikanti et al. 2022: memory saved, and utilization from the printed seconds."""
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
    return rows


def largest_replica() -> list[Row]:
    """Zhao et al. 2023, FSDP: the largest model that fits one A100 of 40 GB whole, at 16 bytes for each parameter."""
    ours = A100_DGX.memory / memory.zero(1, 1, 0)
    return [Row("FSDP", "largest model without sharding on 40 GB", 2.28, ours / 1e9, "B", 10)]


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
