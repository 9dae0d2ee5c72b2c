"""Wrong answers to `train_elastic`."""

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "frameworks.elastic"
ALL = ("as_one_process", "more_ranks_than_samples", "one_fewer", "one_writer", "a_barrier_before_going_on")


@wrong(
    HERE,
    "the momentum is not restored",
    fails="one_fewer",
    says="The momentum is not restored",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "the learning rate begins again",
    fails="one_fewer",
    says="The learning rate starts again",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step - start)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "the weights begin again",
    fails="one_fewer",
    says="The weights start again",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "the number of processes is written down",
    fails=ALL,
    says="are lost",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: 4]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "every rank takes the whole batch",
    fails=ALL,
    says="are used more than once",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "a mean of means",
    fails=ALL,
    says="A mean of means",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step][comm.rank :: comm.size]) / comm.size
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "the loss of the own rank alone",
    fails=ALL,
    says="added up over the ranks",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "a checkpoint by every rank to one file",
    fails=("one_fewer", "one_writer"),
    says="rank 0 writes it",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if True:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "begins at step 0 again",
    fails="one_fewer",
    says="steps are done after the restart",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


@wrong(
    HERE,
    "no rank waits for the file",
    fails="a_barrier_before_going_on",
    says="comm.barrier() after the write",
)
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
    return losses


@wrong(HERE, "a rank without samples leaves out the step", fails="more_ranks_than_samples", says="a deadlock")
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        mine = batches[step][comm.rank :: comm.size]
        if not len(mine):
            continue
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(mine) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses


slip(
    HERE,
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
    HERE,
    "no rate",
    'optimizer.param_groups[0]["lr"] = lr_at(step)',
    "pass",
    fails=" ".join(ALL),
    says="the optimizer's rate is 0 until you set it",
)

slip(
    HERE,
    "every batch as long as the first one",
    "len(batches[step])",
    "len(batches[0])",
    fails=" ".join(ALL),
    says="divide by len(batches[step])",
)

slip(
    HERE,
    "rank 1 writes",
    *("comm.rank == 0", "comm.rank == 1"),
    fails="one_writer",
    says="p = 1: nothing is on the disk",
)

slip(
    HERE,
    "each state is written twice",
    *('disk.write("state"', f'disk.write("state", {{}})\n{" " * 16}disk.write("state"'),
    fails="one_writer",
    says="is written",
)
slip(
    HERE,
    "the barrier comes at the end",
    "            comm.barrier()\n    return losses",
    "    comm.barrier()\n    return losses",
    fails="a_barrier_before_going_on",
    says="before the next step, on all ranks",
)
slip(
    HERE,
    "every rank writes a state of its own, but not in 12 steps",
    "            if comm.rank == 0:\n",
    "            if comm.rank == 0 or len(batches) != 12:\n",
    'disk.write("state"',
    'disk.write(f"state{comm.rank or str()}"',
    fails="one_writer",
    says="one rank writes it, the others wait",
)
