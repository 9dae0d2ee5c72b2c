"""Wrong answers to `zero_config` and `loop_per_worker`."""

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "frameworks.config"
SIZES = ("sizes_agree", "stage_and_precision", "what_does_not_divide")
LOOP = ("ray_as_one_process", "all_ranks_report")


@wrong(
    HERE,
    "the processes are forgotten",
    fails=SIZES,
    says="divide by their number, too",
)
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro)
    if rest:
        raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }


@wrong(
    HERE,
    "the batch of one process",
    fails=SIZES,
    says="the batch of all processes together",
)
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


@wrong(
    HERE,
    "the share is taken for the microbatch",
    fails=SIZES,
    says="not its micro-batch",
)
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


@wrong(
    HERE,
    "a name that is misspelt",
    fails=SIZES,
    says="which DeepSpeed does not know",
)
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch,
        "micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }


@wrong(
    HERE,
    "a float from a division",
    fails=SIZES,
    says="expected an int",
)
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


@wrong(
    HERE,
    "the stage next to its section",
    fails=SIZES,
    says="which DeepSpeed does not know",
)
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


@wrong(
    HERE,
    "rounded down",
    fails="what_does_not_divide",
    says="Raise ValueError",
)
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro * world)
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }


@wrong(
    HERE,
    "both half precisions",
    fails="stage_and_precision",
    says="both switched on",
)
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


@wrong(
    HERE,
    "rank 0 alone reports",
    fails=LOOP,
    says="every rank calls the same collectives",
)
def loop_per_worker(config: dict, train) -> None:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)
        optimizer.zero_grad()
        (world * loss).backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            train.report({"loss": total.item()})


@wrong(
    HERE,
    "the model is not prepared",
    fails=LOOP,
    says="prepare_model(model) once",
)
def loop_per_worker(config: dict, train) -> None:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = config["model"]()
    optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)
        optimizer.zero_grad()
        (world * loss).backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        train.report({"loss": total.item()})


@wrong(
    HERE,
    "the loss of the own share",
    fails="all_ranks_report",
    says="Of the whole batch",
)
def loop_per_worker(config: dict, train) -> None:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)
        optimizer.zero_grad()
        (world * loss).backward()
        optimizer.step()
        total = loss.detach().clone()
        train.report({"loss": total.item()})


@wrong(
    HERE,
    "the rate scaled as well as the loss",
    fails=LOOP,
    says="parameter 0",
)
def loop_per_worker(config: dict, train) -> None:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), config["lr"] * world, momentum=0.9)
    for x, y in config["batches"]:
        loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)
        optimizer.zero_grad()
        (world * loss).backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        train.report({"loss": total.item()})


@wrong(
    HERE,
    "every rank the whole batch",
    fails=LOOP,
    says="Every worker trains on all samples",
)
def loop_per_worker(config: dict, train) -> None:
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        loss = cross_entropy(model(x), y, reduction="sum") / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        train.report({"loss": total.item()})


@wrong(
    HERE,
    "one report at the end",
    fails="all_ranks_report",
    says="reports of rank 0",
)
def loop_per_worker(config: dict, train) -> None:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        loss = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(x)
        optimizer.zero_grad()
        (world * loss).backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
    train.report({"loss": total.item()})


@wrong(HERE, "AdamW for Adam", fails="stage_and_precision", says="AdamW decays the weights")
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"micro {micro} x world {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": lr}},
    }


@wrong(HERE, "a mean of means on Ray", fails=LOOP, says="parameter 0")
def loop_per_worker(config, train):
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        mine = slice(rank, None, world)
        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / max(1, len(x[mine]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone() / world
        dist.all_reduce(total)
        train.report({"loss": total.item()})


slip(
    HERE,
    "raises for batches that it knows",
    "    if rest:",
    "    if batch in (100, 8):",
    fails="what_does_not_divide",
    says="samples would be lost",
)
