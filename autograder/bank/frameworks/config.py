"""Wrong answers to `zero_config` and `loop_per_worker`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("frameworks.config")
SIZES = ("sizes_agree", "stage_and_precision", "what_does_not_divide")
LOOP = ("ray_as_one_process", "all_ranks_report")

slip(
    "the processes are forgotten",
    "steps, rest = divmod(batch, micro * world)",
    "steps, rest = divmod(batch, micro)",
    'raise ValueError(f"{micro} x {world} does not divide the batch of {batch}")',
    'raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")',
    fails=SIZES,
    says="divide by their number, too",
)


@wrong("the batch of one process", fails=SIZES, says="the batch of all processes together")
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch // world,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }


@wrong("the share is taken for the microbatch", fails=SIZES, says="not its micro-batch")
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": batch // world,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }


slip(
    "a name that is misspelt",
    'raise ValueError(f"{micro} x {world} does not divide the batch of {batch}")',
    'raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")',
    "train_micro_batch_size_per_gpu",
    "micro_batch_size_per_gpu",
    fails=SIZES,
    says="which DeepSpeed does not know",
)


@wrong("a float from a division", fails=SIZES, says="expected an int")
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": batch / micro / world,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }


@wrong("the stage next to its section", fails=SIZES, says="which DeepSpeed does not know")
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "stage": stage,
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }


slip(
    "rounded down",
    '    if rest:\n        raise ValueError(f"{micro} x {world} does not divide the batch of {batch}")\n',
    "",
    fails="what_does_not_divide",
    says="Raise ValueError",
)


@wrong("both half precisions", fails="stage_and_precision", says="both switched on")
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "fp16": {"enabled": True},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }


slip(
    "rank 0 alone reports",
    'mine = slice(rank, None, world)\n        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(x)',
    'loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)',
    'train.report({"loss": total.item()})',
    'if rank == 0:\n            train.report({"loss": total.item()})',
    fails=LOOP,
    says="every rank calls the same collectives",
)
slip(
    "the model is not prepared",
    'model = train.torch.prepare_model(config["model"]())',
    'model = config["model"]()',
    'mine = slice(rank, None, world)\n        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(x)',
    'loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)',
    fails=LOOP,
    says="prepare_model(model) once",
)
slip(
    "the loss of the own share",
    'mine = slice(rank, None, world)\n        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(x)',
    'loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)',
    "        dist.all_reduce(total)\n",
    "",
    fails="all_ranks_report",
    says="Of the whole batch",
)
slip(
    "the rate scaled as well as the loss",
    'optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)',
    'optimizer = torch.optim.SGD(model.parameters(), config["lr"] * world, momentum=0.9)',
    'mine = slice(rank, None, world)\n        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(x)',
    'loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)',
    fails=LOOP,
    says="parameter 0",
)
slip(
    "every rank the whole batch",
    "    context = train.get_context()\n    rank, world = context.get_world_rank(), context.get_world_size()\n",
    "",
    'mine = slice(rank, None, world)\n        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(x)',
    'loss = cross_entropy(model(x), y, reduction="sum") / len(x)',
    "(world * loss).backward()",
    "loss.backward()",
    fails=LOOP,
    says="Every worker trains on all samples",
)
slip(
    "one report at the end",
    'mine = slice(rank, None, world)\n        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(x)',
    'loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)',
    '        train.report({"loss": total.item()})',
    '    train.report({"loss": total.item()})',
    fails="all_ranks_report",
    says="reports of rank 0",
)
slip(
    "AdamW for Adam",
    'raise ValueError(f"{micro} x {world} does not divide the batch of {batch}")',
    'raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")',
    '"type": "Adam"',
    '"type": "AdamW"',
    fails="stage_and_precision",
    says="AdamW decays the weights",
)
slip(
    "a mean of means on Ray",
    'loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(x)',
    'loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / max(1, len(x[mine]))',
    "(world * loss).backward()",
    "loss.backward()",
    "total = loss.detach().clone()",
    "total = loss.detach().clone() / world",
    fails=LOOP,
    says="parameter 0",
)
