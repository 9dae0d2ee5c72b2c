"""Wrong answers to `broken`: each script unmended, and mended in another place."""

from functools import partial

from autograder.bank.slips import slip

slip = partial(slip, "frameworks.broken")
ORDER, MEAN, PLACE = "a_new_order_in_each_epoch", "the_mean_of_a_step", "on_several_machines"
KILLED, PART = "killed_at_any_write", "every_rank_takes_part"
EPOCH, LOSS = "sampler.set_epoch(epoch)", "loss = loss_sum(part) / len(chosen)"
IN_PLACE = 'disk.write("new state"', 'disk.write("state"', '                disk.rename("new state", "state")\n', ""
LOGGED = "        if step % every == 0:\n"
SUM = "total = loss.detach().reshape(1).clone()\n{0}ring_all_reduce(total, comm)\n"
ASKS = "            if comm.rank == 0:\n                log("

slip("set_epoch forgotten", f"        {EPOCH}\n", "", fails=ORDER, says="Every epoch has the order of epoch 0")
slip("set_epoch after the epoch", EPOCH, "sampler.set_epoch(max(0, epoch - 1))", fails=ORDER, says="the epoch before")
slip("two ranks, however many there are", "(len(mine) * comm.size)", "(len(mine) * 2)", fails=ORDER, says="p = 3")
slip("epochs counted from 1", EPOCH, "sampler.set_epoch(epoch + 1)", fails=ORDER, says="the first epoch has number 0")

for mistake, loss, says in (
    ("a mean for each pass", "(len(part) * comm.size)", "as many times too large as there are passes"),
    ("a mean of means", "(len(part) * comm.size * passes)", "A mean of means"),
    ("divided by the passes, too", "len(chosen) / passes", "Gradients are too small"),
):
    slip(mistake, LOSS, LOSS.replace("len(chosen)", loss), fails=MEAN, says=says)
slip(
    "gradients reset before each pass",
    *(LOSS, f"optimizer.zero_grad()\n            {LOSS}"),
    fails=MEAN,
    says="Only the last pass of each rank counts",
)
slip("LOCAL_RANK for the share", '["RANK"]', '["LOCAL_RANK"]', fails=PLACE, says="LOCAL_RANK counts on one machine")
slip("RANK for the GPU", "['LOCAL_RANK']", "['RANK']", fails=PLACE, says="the device has the number LOCAL_RANK")
slip("the state written in place", *IN_PLACE, fails=KILLED, says="The new state is written over the old one")
slip(
    "half a file taken for a first start",
    *(*IN_PLACE, "except FileNotFoundError:", "except OSError:"),
    fails=KILLED,
    says="the script begins at step 0; the state of step",
)
slip(
    "the old state moved away first",
    *(
        'disk.write("new',
        f'if step + 1 > every:\n{" " * 20}disk.rename("state", "old state")\n{" " * 16}disk.write("new',
    ),
    fails=KILLED,
    says="the script begins at step 0; the state of step",
)
slip(
    "saved once, at the end",
    *("if (step + 1) % every == 0:", "if step + 1 == len(batches):"),
    fails=KILLED,
    says="one rank writes one file after steps",
)
slip(
    "rank 0 sums alone",
    *(LOGGED, LOGGED.replace("0:", "0 and comm.rank == 0:")),
    fails=PART,
    says="both sides need the same dtype",
)
slip("every rank logs", ASKS, ASKS.replace("comm.rank == 0", "True"), fails=PART, says="steps that rank 1 logs")
slip(
    "rank 0 logs its own part",
    "            ring_all_reduce(total, comm)\n",
    "",
    fails=PART,
    says="That is rank 0's part",
)
slip(
    "losses summed in every step",
    *(f"{LOGGED}            {SUM.format(' ' * 12)}", f"        {SUM.format(' ' * 8)}{LOGGED}"),
    fails=PART,
    says="and the losses to log",
)
slip(
    "losses shown to all ranks in every step",
    "        if step % every == 0:\n            total",
    "        for rank in range(comm.size):\n"
    "            comm.broadcast(loss.detach().reshape(1).clone(), rank)\n"
    "        if step % every == 0:\n            total",
    fails=PART,
    says="and the losses to log",
)
