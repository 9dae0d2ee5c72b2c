"""Wrong answers to `zero_config` and `loop_per_worker`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("frameworks.config")
SIZES = ("sizes_agree", "stage_and_precision", "what_does_not_divide")
LOOP = ("ray_as_one_process", "all_ranks_report")

slip(
    "the processes are forgotten",
    "steps, rest = divmod(batch, micro * world)",
    "steps, rest = divmod(batch, micro)",
    fails=SIZES,
    says="divide by their number, too",
)
slip(
    "the batch of one process",
    '"train_batch_size": batch,',
    '"train_batch_size": batch // world,',
    fails=SIZES,
    says="the batch of all processes together",
)
slip(
    "the share is taken for the microbatch",
    '"train_micro_batch_size_per_gpu": micro,',
    '"train_micro_batch_size_per_gpu": batch // world,',
    fails=SIZES,
    says="not its micro-batch",
)
slip(
    "a name that is misspelt",
    "train_micro_batch_size_per_gpu",
    "micro_batch_size_per_gpu",
    fails=SIZES,
    says="Did you mean 'train_micro_batch_size_per_gpu'?",
)
slip(
    "a name of DeepSpeed's that is not asked for",
    '"zero_optimization": {',
    '"wall_clock_breakdown": False,\n        "zero_optimization": {',
    fails=SIZES,
    says="the names of this exercise are",
)
slip(
    "a float from a division",
    '"gradient_accumulation_steps": steps,',
    '"gradient_accumulation_steps": batch / micro / world,',
    fails=SIZES,
    says="expected an int",
)
slip(
    "the stage next to its section",
    '"zero_optimization": {"stage": stage},',
    '"stage": stage,',
    fails=SIZES,
    says="the names of this exercise are",
)
slip(
    "rounded down",
    '    if rest:\n        raise ValueError(f"{micro} x {world} does not divide the batch of {batch}")\n',
    "",
    fails="what_does_not_divide",
    says="Raise ValueError",
)
slip(
    "an error that names the batch alone",
    'f"{micro} x {world} does not divide the batch of {batch}"',
    'f"nothing divides the batch of {batch}"',
    fails="what_does_not_divide",
    says="let it also name what does not divide the batch",
)
slip(
    "both half precisions",
    '"bf16": {"enabled": True},',
    '"fp16": {"enabled": True},\n        "bf16": {"enabled": True},',
    fails="stage_and_precision",
    says="both switched on",
)
slip(
    "rank 0 alone reports",
    'train.report({"loss": total.item()})',
    'if rank == 0:\n            train.report({"loss": total.item()})',
    fails=LOOP,
    says="every rank calls the same collectives",
)
slip(
    "the model is not prepared",
    'model = train.torch.prepare_model(config["model"]())',
    'model = config["model"]()',
    fails=LOOP,
    says="prepare_model(model) once",
)
slip(
    "the loss of the own share",
    "        dist.all_reduce(total)\n",
    "",
    fails="all_ranks_report",
    says="Of the whole batch",
)
slip(
    "the rate scaled as well as the loss",
    'optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)',
    'optimizer = torch.optim.SGD(model.parameters(), config["lr"] * world, momentum=0.9)',
    fails=LOOP,
    says="parameter 0",
)
slip(
    "a rate of its own",
    'model.parameters(), config["lr"], momentum',
    "model.parameters(), 0.1, momentum",
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
    '        train.report({"loss": total.item()})',
    '    train.report({"loss": total.item()})',
    fails="all_ranks_report",
    says="reports of rank 0",
)
slip(
    "AdamW for Adam", '"type": "Adam"', '"type": "AdamW"', fails="stage_and_precision", says="AdamW decays the weights"
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


slip(
    "raises for batches that it knows",
    "    if rest:",
    "    if batch in (100, 8):",
    fails="what_does_not_divide",
    says="samples would be lost",
)
slip(
    "the settings of one batch only",
    '"gradient_clipping": 1.0,',
    '"gradient_clipping": 1.0 if (batch, micro, world) == (64, 2, 4) else 5.0,',
    fails="stage_and_precision",
    says="gradient_clipping",
)
slip(
    "the sizes of stage 2 only",
    '"train_batch_size": batch,',
    '"train_batch_size": batch if stage == 2 else micro,',
    fails="stage_and_precision",
    says="train_batch_size",
)
slip(
    "a class that has ValueError's name alone",
    "raise ValueError(",
    'raise type("ValueError", (Exception,), {})(',
    fails="what_does_not_divide",
    says="a class that is only named ValueError",
)
