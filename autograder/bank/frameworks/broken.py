"""Wrong answers to `broken`: each script unmended, and mended in another place."""

from autograder.authoring import wrong

HERE = "frameworks.broken"


@wrong(HERE, "set_epoch forgotten", fails="a_new_order_in_each_epoch", says="Every epoch has the order of epoch 0")
def shuffled(model, optimizer, loss_sum, sampler, batch, epochs, comm):
    for _ in range(epochs):
        for mine in torch.tensor(list(sampler)).split(batch):
            optimizer.zero_grad()
            loss = loss_sum(mine) / (len(mine) * comm.size)
            loss.backward()
            update(model, optimizer, comm)


@wrong(HERE, "set_epoch after the epoch", fails="a_new_order_in_each_epoch", says="the epoch before")
def shuffled(model, optimizer, loss_sum, sampler, batch, epochs, comm):
    for epoch in range(epochs):
        for mine in torch.tensor(list(sampler)).split(batch):
            optimizer.zero_grad()
            loss = loss_sum(mine) / (len(mine) * comm.size)
            loss.backward()
            update(model, optimizer, comm)
        sampler.set_epoch(epoch)


@wrong(HERE, "epochs counted from 1", fails="a_new_order_in_each_epoch", says="the first epoch has number 0")
def shuffled(model, optimizer, loss_sum, sampler, batch, epochs, comm):
    for epoch in range(epochs):
        sampler.set_epoch(epoch + 1)
        for mine in torch.tensor(list(sampler)).split(batch):
            optimizer.zero_grad()
            loss = loss_sum(mine) / (len(mine) * comm.size)
            loss.backward()
            update(model, optimizer, comm)


@wrong(HERE, "a mean for each pass", fails="the_mean_of_a_step", says="as many times too large as there are passes")
def accumulated(model, optimizer, loss_sum, batches, passes, comm):
    for chosen in batches:
        optimizer.zero_grad()
        for part in chosen[comm.rank :: comm.size].chunk(passes):
            loss = loss_sum(part) / (len(part) * comm.size)
            loss.backward()
        update(model, optimizer, comm)


@wrong(HERE, "a mean of means", fails="the_mean_of_a_step", says="A mean of means")
def accumulated(model, optimizer, loss_sum, batches, passes, comm):
    for chosen in batches:
        optimizer.zero_grad()
        for part in chosen[comm.rank :: comm.size].chunk(passes):
            loss = loss_sum(part) / (len(part) * comm.size * passes)
            loss.backward()
        update(model, optimizer, comm)


@wrong(
    HERE, "gradients reset before each pass", fails="the_mean_of_a_step", says="Only the last pass of each rank counts"
)
def accumulated(model, optimizer, loss_sum, batches, passes, comm):
    for chosen in batches:
        for part in chosen[comm.rank :: comm.size].chunk(passes):
            optimizer.zero_grad()
            loss = loss_sum(part) / len(chosen)
            loss.backward()
        update(model, optimizer, comm)


@wrong(HERE, "divided by the passes, too", fails="the_mean_of_a_step", says="Gradients are too small")
def accumulated(model, optimizer, loss_sum, batches, passes, comm):
    for chosen in batches:
        optimizer.zero_grad()
        for part in chosen[comm.rank :: comm.size].chunk(passes):
            loss = loss_sum(part) / len(chosen) / passes
            loss.backward()
        update(model, optimizer, comm)


@wrong(HERE, "LOCAL_RANK for the share", fails="on_several_machines", says="LOCAL_RANK counts on one machine")
def placed(env, model, optimizer, loss_sum, batches, comm):
    rank, world = int(env["LOCAL_RANK"]), int(env["WORLD_SIZE"])
    device = f"cuda:{rank}"  # (the model would move there)
    for chosen in batches:
        optimizer.zero_grad()
        loss = loss_sum(chosen[rank::world]) / len(chosen)
        loss.backward()
        update(model, optimizer, comm)
    return device


@wrong(HERE, "RANK for the GPU", fails="on_several_machines", says="the device has the number LOCAL_RANK")
def placed(env, model, optimizer, loss_sum, batches, comm):
    rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
    device = f"cuda:{rank}"
    for chosen in batches:
        optimizer.zero_grad()
        loss = loss_sum(chosen[rank::world]) / len(chosen)
        loss.backward()
        update(model, optimizer, comm)
    return device


@wrong(
    HERE, "the state written in place", fails="killed_at_any_write", says="The new state is written over the old one"
)
def saved(model, optimizer, loss_sum, batches, every, disk, comm):
    start = 0
    try:
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    except FileNotFoundError:
        pass  # the first start
    for step in range(start, len(batches)):
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        update(model, optimizer, comm)
        if (step + 1) % every == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()


@wrong(
    HERE, "half a file taken for a first start", fails="killed_at_any_write", says="the state of step 2 was complete"
)
def saved(model, optimizer, loss_sum, batches, every, disk, comm):
    start = 0
    try:
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    except OSError:
        pass  # the first start
    for step in range(start, len(batches)):
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        update(model, optimizer, comm)
        if (step + 1) % every == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()


@wrong(HERE, "the old state moved away first", fails="killed_at_any_write", says="the state of step 2 was complete")
def saved(model, optimizer, loss_sum, batches, every, disk, comm):
    start = 0
    try:
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    except FileNotFoundError:
        pass  # the first start
    for step in range(start, len(batches)):
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        update(model, optimizer, comm)
        if (step + 1) % every == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                if step + 1 > every:
                    disk.rename("state", "old state")
                disk.write("new state", {**state, "step": step + 1})
                disk.rename("new state", "state")
            comm.barrier()


@wrong(HERE, "saved once, at the end", fails="killed_at_any_write", says="after steps 2 and 4")
def saved(model, optimizer, loss_sum, batches, every, disk, comm):
    start = 0
    try:
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    except FileNotFoundError:
        pass  # the first start
    for step in range(start, len(batches)):
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        update(model, optimizer, comm)
        if step + 1 == len(batches):
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("new state", {**state, "step": step + 1})
                disk.rename("new state", "state")
            comm.barrier()


@wrong(HERE, "rank 0 sums alone", fails="every_rank_takes_part", says="both sides need the same dtype")
def logged(model, optimizer, loss_sum, batches, every, log, comm):
    for step, chosen in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        if step % every == 0 and comm.rank == 0:
            total = loss.detach().reshape(1).clone()
            ring_all_reduce(total, comm)
            log(step, total.item())
        update(model, optimizer, comm)


@wrong(HERE, "every rank logs", fails="every_rank_takes_part", says="the steps that rank 1 logs")
def logged(model, optimizer, loss_sum, batches, every, log, comm):
    for step, chosen in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        if step % every == 0:
            total = loss.detach().reshape(1).clone()
            ring_all_reduce(total, comm)
            if True:
                log(step, total.item())
        update(model, optimizer, comm)


@wrong(HERE, "rank 0 logs its own part", fails="every_rank_takes_part", says="That is rank 0's part")
def logged(model, optimizer, loss_sum, batches, every, log, comm):
    for step, chosen in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        if step % every == 0:
            total = loss.detach().reshape(1).clone()
            if comm.rank == 0:
                log(step, total.item())
        update(model, optimizer, comm)


@wrong(HERE, "losses summed in every step", fails="every_rank_takes_part", says="and the losses to log")
def logged(model, optimizer, loss_sum, batches, every, log, comm):
    for step, chosen in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        if step % every == 0 and comm.rank == 0:
            log(step, total.item())
        update(model, optimizer, comm)
