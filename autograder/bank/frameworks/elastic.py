"""Wrong answers to `train_elastic`."""

from autograder.bank.slips import answers_to

_, slip = answers_to("frameworks.elastic")
ALL = ("as_one_process", "more_ranks_than_samples", "one_fewer", "one_writer", "a_barrier_before_going_on")

slip(
    "the momentum is not restored",
    '        optimizer.load_state_dict(state["optimizer"])\n',
    "",
    fails="one_fewer",
    says="The momentum is not restored",
)
slip(
    "the learning rate begins again",
    'optimizer.param_groups[0]["lr"] = lr_at(step)',
    'optimizer.param_groups[0]["lr"] = lr_at(step - start)',
    fails="one_fewer",
    says="The learning rate starts again",
)
slip(
    "the weights begin again",
    '        model.load_state_dict(state["model"])\n',
    "",
    fails="one_fewer",
    says="The weights start again",
)
slip("the number of processes is written down", "rank :: comm.size", "rank :: 4", fails=ALL, says="are lost")
slip("every rank takes the whole batch", "[comm.rank :: comm.size]", "", fails=ALL, says="are used more than once")
slip(
    "a mean of means",
    "loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])",
    "loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step][comm.rank :: comm.size]) / comm.size",
    fails=ALL,
    says="A mean of means",
)
slip(
    "the loss of the own rank alone",
    "        ring_all_reduce(total, comm)\n",
    "",
    fails=ALL,
    says="added up over the ranks",
)
slip(
    "a checkpoint by every rank to one file",
    "if comm.rank == 0:",
    "if True:",
    fails=("one_fewer", "one_writer", "a_barrier_before_going_on"),
    says="rank 0 writes it",
)
slip(
    "begins at step 0 again",
    '        start = state["step"]\n',
    "",
    fails="one_fewer",
    says="steps are done after the restart",
)
slip(
    "no rank waits for the file",
    "            comm.barrier()\n",
    "",
    fails="a_barrier_before_going_on",
    says="comm.barrier() after the write",
)
slip(
    "a rank without samples leaves out the step",
    'optimizer.param_groups[0]["lr"] = lr_at(step)',
    "mine = batches[step][comm.rank :: comm.size]\n"
    "        if not len(mine):\n"
    "            continue\n"
    '        optimizer.param_groups[0]["lr"] = lr_at(step)',
    "loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])",
    "loss = loss_sum(mine) / len(batches[step])",
    fails="more_ranks_than_samples",
    says="a deadlock",
)
slip(
    "a state of each rank",
    'disk.exists("state")',
    'disk.exists(f"state {comm.rank}")',
    'disk.read("state")',
    'disk.read(f"state {comm.rank}")',
    'disk.write("state"',
    'disk.write(f"state {comm.rank}"',
    "if comm.rank == 0:",
    "if True:",
    fails="one_fewer one_writer",
    says="one rank writes it",
)
slip(
    "no rate",
    'optimizer.param_groups[0]["lr"] = lr_at(step)',
    "pass",
    fails=" ".join(ALL),
    says="the optimizer's rate is 0 until you set it",
)
slip(
    "every batch as long as the first one",
    "len(batches[step])",
    "len(batches[0])",
    fails=" ".join(ALL),
    says="divide by len(batches[step])",
)
slip(
    "rank 1 writes",
    *("comm.rank == 0", "comm.rank == 1"),
    fails="one_writer",
    says="p = 1: nothing is on the disk",
)
slip(
    "each state is written twice",
    *('disk.write("state"', f'disk.write("state", {{}})\n{" " * 16}disk.write("state"'),
    fails="one_writer",
    says="is written",
)
slip(
    "a file after step 7",
    "    return losses",
    """        if step == 6:
            if comm.rank == 0:
                disk.write("more", {})
            comm.barrier()
    return losses""",
    fails="one_writer",
    says="a state is saved after steps 5, 10",
)
slip(
    "no barrier between two ranks",
    "            comm.barrier()\n    return losses",
    "            if comm.size > 2:\n                comm.barrier()\n    return losses",
    fails="a_barrier_before_going_on",
    says="comm.barrier() after the write",
)
slip(
    "the barrier comes at the end",
    "            comm.barrier()\n    return losses",
    "    comm.barrier()\n    return losses",
    fails="a_barrier_before_going_on",
    says="before the next step, on all ranks",
)
slip(
    "every rank writes a state of its own, but not in 12 steps",
    "            if comm.rank == 0:\n",
    "            if comm.rank == 0 or len(batches) != 12:\n",
    'disk.write("state"',
    'disk.write(f"state{comm.rank or str()}"',
    fails="one_writer",
    says="one rank writes it, the others wait",
)
slip(
    "the first state alone is waited for",
    *("            comm.barrier()\n", "            if step < 5:\n                comm.barrier()\n"),
    fails="a_barrier_before_going_on",
    says="comm.barrier() after the write",
)
slip(
    "the first state alone is waited for, and the end",
    "            comm.barrier()\n",
    "            if step < 5:\n                comm.barrier()\n    comm.barrier()\n",
    fails="a_barrier_before_going_on",
    says="begins step 10 at",
)
