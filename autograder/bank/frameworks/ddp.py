"""Wrong answers to `place` and `train`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("frameworks.torchrun")
TRAINS = ("as_one_process", "an_uneven_tail", "one_bucket")


@wrong("LOCAL_RANK for RANK", fails=("where_am_i", *TRAINS), says="two processes would have the same share")
def place(env):
    return int(env["LOCAL_RANK"]), int(env["WORLD_SIZE"]), f"cuda:{env['LOCAL_RANK']}"


@wrong("RANK for the device", fails=("where_am_i", *TRAINS), says="choose the device by LOCAL_RANK")
def place(env):
    return int(env["RANK"]), int(env["WORLD_SIZE"]), f"cuda:{env['RANK']}"


@wrong("the world of one machine", fails=("where_am_i", *TRAINS), says="WORLD_SIZE")
def place(env):
    return int(env["RANK"]), int(env["LOCAL_WORLD_SIZE"]), f"cuda:{env['LOCAL_RANK']}"


slip("set_epoch forgotten", "(len(x), epoch).split", "(len(x), 0).split", fails=TRAINS, says="without set_epoch")
slip("a mean of means", "len(chosen)", "max(1, len(mine)) / world", fails="an_uneven_tail", says="A mean of means")
slip("the factor p is missing", "(world * loss)", "loss", fails=TRAINS, says="p times too small")
slip(
    "no DDP",
    "losses = DistributedDataParallel(model)",
    "losses = model",
    fails=TRAINS,
    says="Only the rank's own gradients count",
)
slip(
    "each rank trains by itself",
    "losses = DistributedDataParallel(model)",
    "losses = model",
    "(world * loss)",
    "loss",
    fails=TRAINS,
    says="Each rank trains by itself",
)
slip("no zero_grad", "            optimizer.zero_grad()\n", "", fails=TRAINS, says="call optimizer.zero_grad()")
slip(
    "a piece of a batch for each rank",
    "chosen[rank::world]",
    "chosen.tensor_split(world)[rank]",
    fails=TRAINS,
    says="rank r takes every p-th sample",
)
slip(
    "a sum of means",
    'reduction="sum") / len(chosen)',
    'reduction="sum") / max(1, len(mine))',
    "(world * loss)",
    "loss",
    fails=TRAINS,
    says="a sum of the ranks' means",
)
slip(
    "the loss of the own rank alone",
    "            dist.all_reduce(total)\n",
    "",
    fails=TRAINS,
    says="added up over the ranks",
)
slip(
    "the tail is dropped",
    "mine = chosen[rank::world]",
    "if len(chosen) < batch:\n                continue\n            mine = chosen[rank::world]",
    fails="an_uneven_tail",
    says="You skip the last batch",
)
slip(
    "gradients are added up a second time",
    "optimizer.step()",
    "for param in model.parameters():\n"
    "                dist.all_reduce(param.grad)\n"
    "                param.grad /= world\n"
    "            optimizer.step()",
    fails="one_bucket",
    says="all-reduces of",
)
slip(
    "the weights travel in every step",
    "optimizer.step()",
    "optimizer.step()\n            for param in model.parameters():\n                dist.broadcast(param.detach(), 0)",
    fails="one_bucket",
    says="besides the all-reduces",
)
slip("the number of processes is written down", "[rank::world]", "[rank::4]", fails=TRAINS, says="parameter 0")
slip(
    "every process trains on all samples",
    "    rank, world, _ = place(env)\n",
    "",
    "mine = chosen[rank::world]\n"
    '            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)',
    "loss = cross_entropy(model(x[chosen]), y[chosen])",
    "(world * loss).backward()",
    "loss.backward()",
    "total = loss.detach().clone()\n            dist.all_reduce(total)\n            losses.append(total.item())",
    "losses.append(loss.item())",
    fails=("as_one_process", "an_uneven_tail", "one_bucket"),
    says="rank r takes chosen[r::p]",
)
