"""Lab `frameworks` answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% torchrun: numbers by name, and a helper for the share
def place(env):
    rank, world, local = (int(env[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    return rank, world, "cuda:" + str(local)


def share_of(chosen, rank, world):
    return chosen[torch.arange(len(chosen)) % world == rank]


def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    net = DistributedDataParallel(model)
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    means = []
    for epoch in range(epochs):
        shuffled = order(len(x), epoch)
        for first in range(0, len(x), batch):
            whole_batch = shuffled[first : first + batch]
            mine = share_of(whole_batch, rank, world)
            opt.zero_grad()
            part = cross_entropy(net(x[mine]), y[mine], reduction="none").sum() / len(whole_batch)
            (part * world).backward()
            opt.step()
            mean = part.detach()
            dist.all_reduce(mean, op=dist.ReduceOp.SUM)
            means.append(float(mean))
    return means


# %% torchrun: gradients are scaled after the backward pass
def train(env, model, x, y, epochs, batch, lr):
    rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for epoch in range(epochs):
        for chosen in torch.split(order(len(x), epoch), batch):
            mine = [int(i) for k, i in enumerate(chosen) if k % world == rank]
            optimizer.zero_grad()
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum")
            loss.backward()
            for p in model.parameters():
                p.grad *= world / len(chosen)
            optimizer.step()
            both = loss.detach() / len(chosen)
            dist.all_reduce(both)
            losses += [both.item()]
    return losses


# %% torchrun: the process group is asked, and momentum is written out
def place(env):
    return (int(env["RANK"]), int(env["WORLD_SIZE"]), "cuda:%s" % env["LOCAL_RANK"])


def train(env, model, x, y, epochs, batch, lr):
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(model)
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    history = []
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            mine = chosen[rank::world]
            for p in model.parameters():
                p.grad = None
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            (world * loss).backward()
            with torch.no_grad():
                for p, v in zip(model.parameters(), velocity):
                    v.mul_(0.9).add_(p.grad)
                    p.sub_(v, alpha=lr)
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            history.append(shown.item())
    return history


# %% fsdp: children by name, keywords
def shard(model, mesh):
    for name, part in model.named_children():
        if name == "blocks":
            for i in range(len(part)):
                fully_shard(part[i], mesh=mesh)
    fully_shard(module=model, mesh=mesh)
    return model


def whole(model):
    options = StateDictOptions(full_state_dict=True)
    return dict(get_model_state_dict(model, options=options))


def restore(model, state):
    options = StateDictOptions(full_state_dict=True, strict=True)
    set_model_state_dict(model, model_state_dict=state, options=options)


# %% fsdp: from the last block to the first, gathered tensor by tensor
def shard(model, mesh):
    for block in reversed(model.blocks):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(model):
    return {name: value.full_tensor().clone() for name, value in model.state_dict().items()}


# %% fsdp: a list comprehension, and one set of options
EVERYTHING = StateDictOptions(full_state_dict=True)


def shard(model, mesh):
    [fully_shard(block, mesh=mesh) for block in model.blocks]
    return fully_shard(model, mesh=mesh)


def whole(model):
    return get_model_state_dict(model, options=EVERYTHING)


def restore(model, state):
    set_model_state_dict(model, dict(state), options=EVERYTHING)


# %% plan: by the names of all modules
def plan(model):
    ends = {"q": ColwiseParallel, "k": ColwiseParallel, "v": ColwiseParallel, "up": ColwiseParallel}
    ends |= {"out": RowwiseParallel, "down": RowwiseParallel}
    found = {}
    for name, module in model.named_modules():
        parts = name.split(".")
        if parts[0] == "blocks" and len(parts) == 4 and parts[-1] in ends:
            found[name] = ends[parts[-1]]()
    return found


# %% plan: one dict comprehension
def plan(model):
    columns, rows = ("attention.q", "attention.k", "attention.v", "mlp.up"), ("attention.out", "mlp.down")
    return {
        f"blocks.{i}.{name}": ColwiseParallel() if name in columns else RowwiseParallel()
        for i, _ in enumerate(model.blocks)
        for name in columns + rows
    }


# %% plan: a template that is merged
def plan(model: nn.Module) -> dict:
    template = dict.fromkeys(["attention.q", "attention.k", "attention.v", "mlp.up"], ColwiseParallel())
    template.update(dict.fromkeys(["attention.out", "mlp.down"], RowwiseParallel()))
    result = {}
    for i in range(len(model.blocks)):
        result.update({"blocks." + str(i) + "." + name: style for name, style in template.items()})
    return result


# %% horovod: a copy that is divided in place
def allreduce(x, comm, average=True):
    copy = torch.empty_like(x).copy_(x.detach())
    ring_all_reduce(copy, comm)
    if average:
        copy /= comm.size
    return copy


# %% horovod: broadcast under no_grad, by copies
def broadcast_parameters(params, comm, root_rank=0):
    with torch.no_grad():
        for p in params:
            buffer = p.detach().clone()
            comm.broadcast(buffer, root_rank)
            p.copy_(buffer)


def broadcast_optimizer_state(optimizer, comm, root_rank=0):
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for p in params:
        for _, value in sorted(optimizer.state[p].items()):
            comm.broadcast(value, root_rank)


# %% horovod: a counter of one's own for each parameter, and a closure as hook
class DistributedOptimizer:
    def __init__(self, optimizer, comm, backward_passes_per_step=1):
        self.inner, self.comm, self.k = optimizer, comm, backward_passes_per_step
        self.params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.seen = [0] * len(self.params)
        for i, p in enumerate(self.params):
            p.register_post_accumulate_grad_hook(lambda param, i=i: self.arrived(i, param))

    def arrived(self, i, param):
        self.seen[i] += 1
        if self.seen[i] == self.k:
            param.grad = allreduce(param.grad, self.comm)

    def step(self):
        self.seen = [0] * len(self.params)
        self.inner.step()

    def zero_grad(self):
        assert all(n < self.k for n in self.seen), "step first"
        self.inner.zero_grad()


# %% horovod: sums by a ring on a flat copy
def allreduce(x, comm, average=True):
    flat = x.detach().flatten().clone()
    ring_all_reduce(flat, comm)
    flat = flat.view(x.shape)
    return flat if not average else flat.div(comm.size)


# %% elastic: the state is read first, and helpers do the rest
def share(indices, comm):
    return indices[comm.rank :: comm.size]


def resumed(model, optimizer, disk):
    if not disk.exists("state"):
        return 0
    state = disk.read("state")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    losses = {}
    for step in range(resumed(model, optimizer, disk), len(batches)):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(share(batches[step], comm)) / len(batches[step])
        loss.backward()
        for p in model.parameters():
            ring_all_reduce(p.grad, comm)
        optimizer.step()
        mean = torch.tensor([loss.item()], dtype=loss.dtype)
        ring_all_reduce(mean, comm)
        losses[step] = float(mean)
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                disk.write("state", dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step + 1))
            comm.barrier()
    return losses


# %% elastic: a while loop, gradients of a sum divided afterwards
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    losses, step = {}, 0
    saved = disk.read("state") if disk.exists("state") else None
    if saved is not None:
        optimizer.load_state_dict(saved["optimizer"])
        model.load_state_dict(saved["model"])
        step = saved["step"]
    while step < len(batches):
        batch = batches[step]
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        part = loss_sum(batch[comm.rank :: comm.size])
        part.backward()
        for p in model.parameters():
            ring_all_reduce(p.grad, comm)
            p.grad /= len(batch)
        optimizer.step()
        total = part.detach().reshape(1) / len(batch)
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        step += 1
        if step % SAVE_EVERY == 0:
            if comm.rank == 0:
                disk.write("state", {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
            comm.barrier()
    return losses


# %% elastic: one flat message for gradients and loss
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    losses, start = {}, 0
    if disk.exists("state"):
        state = disk.read("state")
        start = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    params = list(model.parameters())
    for step, batch in list(enumerate(batches))[start:]:
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batch[comm.rank :: comm.size]) / len(batch)
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in params] + [loss.detach().reshape(1)])
        ring_all_reduce(flat, comm)
        for p, part in zip(params, flat.split([p.numel() for p in params] + [1])):
            p.grad.copy_(part.view_as(p))
        optimizer.step()
        losses[step] = flat[-1].item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                disk.write(
                    "state",
                    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1},
                )
            comm.barrier()
    return losses


# %% config: a dict that grows, and the check first
def zero_config(batch, micro, world, stage, lr=1e-3):
    if batch % (micro * world) != 0:
        raise ValueError("batch %d is no multiple of micro %d times world %d" % (batch, micro, world))
    config = {}
    config["train_batch_size"] = batch
    config["train_micro_batch_size_per_gpu"] = micro
    config["gradient_accumulation_steps"] = batch // (micro * world)
    config["zero_optimization"] = dict(stage=stage)
    config["bf16"] = dict(enabled=True)
    config["gradient_clipping"] = 1.0
    config["optimizer"] = dict(type="Adam", params=dict(lr=lr))
    return config


# %% config: a loop that scales its gradients
def loop_per_worker(config, train):
    rank = train.get_context().get_world_rank()
    world = train.get_context().get_world_size()
    net = train.torch.prepare_model(config["model"]())
    opt = torch.optim.SGD(net.parameters(), lr=config["lr"], momentum=0.9)
    for inputs, labels in config["batches"]:
        opt.zero_grad()
        part = cross_entropy(net(inputs[rank::world]), labels[rank::world], reduction="sum")
        part.backward()
        for p in net.parameters():
            p.grad.mul_(world / len(inputs))
        opt.step()
        mean = part.detach() / len(inputs)
        dist.all_reduce(mean)
        train.report(dict(loss=float(mean)))


# %% config: keywords of dict, and a helper for the mean
def zero_config(batch, micro, world, stage, lr=1e-3):
    accumulated = batch // (micro * world)
    if accumulated * micro * world != batch:
        raise ValueError(f"batch={batch}, micro={micro}, world={world}: the numbers do not fit")
    return dict(
        train_batch_size=batch,
        train_micro_batch_size_per_gpu=micro,
        gradient_accumulation_steps=accumulated,
        zero_optimization={"stage": stage},
        bf16={"enabled": True},
        gradient_clipping=1.0,
        optimizer={"type": "Adam", "params": {"lr": lr}},
    )


def added_up(part):
    total = part.detach().clone()
    dist.all_reduce(total)
    return total.item()


def loop_per_worker(config, train):
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        mine = torch.arange(len(x))[rank::world]
        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") * world / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        train.report({"loss": added_up(loss / world)})


# %% config: only the numbers, one after the other
def zero_config(batch, micro, world, stage, lr=1e-3):
    per_pass = micro * world
    steps, rest = batch // per_pass, batch % per_pass
    if rest > 0:
        raise ValueError(f"a batch of {batch} is not {micro} samples on {world} processes, some times over")
    numbers = {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
    }
    how = {"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}, "gradient_clipping": 1.0}
    return numbers | how | {"optimizer": {"type": "Adam", "params": {"lr": lr}}}


# %% broken: backup files by turns, ranks from comm
def shuffled(model, optimizer, loss_sum, sampler, batch, epochs, comm):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        mine = list(sampler)
        for first in range(0, len(mine), batch):
            numbers = torch.tensor(mine[first : first + batch])
            optimizer.zero_grad()
            (loss_sum(numbers) / len(numbers) / comm.size).backward()
            update(model, optimizer, comm)


def accumulated(model, optimizer, loss_sum, batches, passes, comm):
    for chosen in batches:
        optimizer.zero_grad()
        for part in chosen[comm.rank :: comm.size].chunk(passes):
            loss_sum(part).backward()
        for param in model.parameters():
            param.grad /= len(chosen)
        update(model, optimizer, comm)


def placed(env, model, optimizer, loss_sum, batches, comm):
    for chosen in batches:
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        update(model, optimizer, comm)
    return "cuda:" + env["LOCAL_RANK"]


def saved(model, optimizer, loss_sum, batches, every, disk, comm):
    found = []
    for name in ("even", "odd"):
        try:
            found.append(disk.read(name))
        except OSError:
            continue  # no file, or half of one
    start = 0
    if found:
        state = max(found, key=lambda state: state["step"])
        start = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(start, len(batches)):
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        update(model, optimizer, comm)
        if (step + 1) % every == 0:
            if comm.rank == comm.size - 1:
                name = "odd" if (step + 1) // every % 2 else "even"
                disk.write(
                    name,
                    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1},
                )
            comm.barrier()


def logged(model, optimizer, loss_sum, batches, every, log, comm):
    for step, chosen in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        update(model, optimizer, comm)
        if step % every:
            continue
        total = torch.tensor([loss.item()], dtype=torch.float64)
        ring_all_reduce(total, comm)
        if not comm.rank:
            log(step, float(total))


# %% broken: one helper for all steps, the sum of losses divided last
def one_step(model, optimizer, loss, comm):
    optimizer.zero_grad()
    loss.backward()
    update(model, optimizer, comm)


def shuffled(model, optimizer, loss_sum, sampler, batch, epochs, comm):
    epoch = 0
    while epoch < epochs:
        sampler.set_epoch(epoch)
        numbers = [i for i in sampler]
        while numbers:
            mine, numbers = torch.tensor(numbers[:batch]), numbers[batch:]
            one_step(model, optimizer, loss_sum(mine) / (comm.size * len(mine)), comm)
        epoch += 1


def accumulated(model, optimizer, loss_sum, batches, passes, comm):
    for chosen in batches:
        mine = chosen[comm.rank :: comm.size]
        loss = sum(loss_sum(part) for part in mine.chunk(passes)) / len(chosen)
        one_step(model, optimizer, loss, comm)


def placed(env, model, optimizer, loss_sum, batches, comm):
    rank, world, local = (int(env[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    for chosen in batches:
        mine = chosen[torch.arange(len(chosen)) % world == rank]
        one_step(model, optimizer, loss_sum(mine) / len(chosen), comm)
    return f"cuda:{local}"


def saved(model, optimizer, loss_sum, batches, every, disk, comm):
    try:
        state = disk.read("latest")
    except FileNotFoundError:
        state = {"step": 0}
    if state["step"]:
        model.load_state_dict(state["weights"])
        optimizer.load_state_dict(state["momentum"])
    for step, chosen in list(enumerate(batches, start=1))[state["step"] :]:
        one_step(model, optimizer, loss_sum(chosen[comm.rank :: comm.size]) / len(chosen), comm)
        if step % every == 0 and comm.rank == 0:
            part = f"step {step}"
            disk.write(part, dict(step=step, weights=model.state_dict(), momentum=optimizer.state_dict()))
            disk.rename(part, "latest")
        if step % every == 0:
            comm.barrier()


def logged(model, optimizer, loss_sum, batches, every, log, comm):
    for step, chosen in enumerate(batches):
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        shown = loss.detach().clone().view(1)
        one_step(model, optimizer, loss, comm)
        if step in range(0, len(batches), every):
            ring_all_reduce(shown, comm)
            if comm.rank == 0:
                log(step, shown.item())


# %% broken: scripts of few words, each sum scaled by hand
def shuffled(model, optimizer, loss_sum, sampler, batch, epochs, comm):
    def of_epoch(e):
        sampler.set_epoch(e)
        return torch.tensor(list(sampler)).split(batch)

    for mine in (part for e in range(epochs) for part in of_epoch(e)):
        model.zero_grad()
        loss_sum(mine).div(len(mine) * comm.size).backward()
        update(model, optimizer, comm)


def accumulated(model, optimizer, loss_sum, batches, passes, comm):
    for chosen in batches:
        model.zero_grad()
        share = chosen[comm.rank :: comm.size]
        for part in share.chunk(passes):
            weight = len(part) / len(chosen)
            (weight * (loss_sum(part) / len(part))).backward()
        update(model, optimizer, comm)


def placed(env, model, optimizer, loss_sum, batches, comm):
    each = env.get("LOCAL_WORLD_SIZE")
    rank = int(env["RANK"])
    for chosen in batches:
        model.zero_grad()
        loss_sum(chosen[rank :: int(env["WORLD_SIZE"])]).div(len(chosen)).backward()
        update(model, optimizer, comm)
    return f"cuda:{rank % int(each)}" if each else f"cuda:{env['LOCAL_RANK']}"


def saved(model, optimizer, loss_sum, batches, every, disk, comm):
    names, start = ("model", "optimizer"), 0
    try:
        *states, start = (disk.read("good")[name] for name in (*names, "step"))
        for thing, state in zip((model, optimizer), states):
            thing.load_state_dict(state)
    except FileNotFoundError:
        start = 0
    for step in range(start, len(batches)):
        chosen = batches[step]
        optimizer.zero_grad()
        loss_sum(chosen[comm.rank :: comm.size]).div(len(chosen)).backward()
        update(model, optimizer, comm)
        if step % every == every - 1:
            if comm.rank == 0:
                disk.write("temporary", dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step + 1))
                disk.rename("temporary", "good")
            comm.barrier()


def logged(model, optimizer, loss_sum, batches, every, log, comm):
    say = log if comm.rank == 0 else lambda step, loss: None
    for step, chosen in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        if not step % every:
            mean = loss.detach().clone()[None]
            ring_all_reduce(mean, comm)
            say(step, mean.item())
        update(model, optimizer, comm)


# %% which_when: a branch for each way
def holds(way, model, ranks):
    layers, hidden, sequence, vocabulary, heads = model
    all_weights = 16 * Transformer(layers, hidden, sequence, vocabulary, heads).parameters
    scores = 5 * heads * sequence / hidden
    kept = layers * sequence * hidden * (34 + scores)
    if way == "DDP":
        return all_weights + kept
    if way == "tensor":
        return all_weights / ranks + layers * sequence * hidden * (10 + (24 + scores) / ranks)
    if way == "pipeline":
        return all_weights / ranks + kept / ranks * ranks
    return all_weights / ranks + kept


def which(model, machine, ranks, batch, budget):
    layers, _, _, _, heads = model
    candidates = []
    if batch % ranks == 0:
        candidates.append(("DDP", dict(data=ranks)))
        candidates.append(("FSDP2", dict(data=ranks, zero=3)))
    if heads % ranks == 0:
        candidates.append(("tensor", dict(tensor=ranks)))
    if layers % ranks == 0:
        candidates.append(("pipeline", dict(pipeline=ranks)))
    best, least = None, float("inf")
    for way, cut in candidates:
        if holds(way, model, ranks) > budget:
            continue
        took = seconds(model, machine, batch, **cut)
        if took < least:
            best, least = way, took
    return best


# %% which_when: predictions of its own layouts, errors caught
def holds(way, model, ranks):
    layers, h, s, _, a = model
    bytes_of = {"weights": 2, "gradients": 2, "states": 12}
    divided = {"DDP": 1}.get(way, ranks)
    t = {"tensor": ranks}.get(way, 1)
    layer = s * h * 10 + s * h * 24 / t + 5 * a * s * s / t
    return sum(bytes_of.values()) * Transformer(*model).parameters / divided + layers * layer


def which(model, machine, ranks, batch, budget):
    layouts = {
        "DDP": Layout(data=ranks),
        "FSDP2": Layout(data=ranks, zero=3),
        "tensor": Layout(tensor=ranks),
        "pipeline": Layout(pipeline=ranks),
    }
    of = {"DDP": batch, "FSDP2": batch, "tensor": model[4], "pipeline": model[0]}
    times = []
    for way, layout in layouts.items():
        if of[way] % ranks or holds(way, model, ranks) > budget:
            continue
        layout = layout._replace(microbatch=1, precision="fp16", itemsize=2, update_bytes=28)
        times.append((predict(Transformer(*model), MACHINES[machine], layout, batch).seconds, way))
    return min(times)[1] if times else None


# %% which_when: sorted by seconds, the first that fits
def holds(way, model, ranks):
    layers, hidden, sequence, _, heads = model
    share = 1.0 if way == "DDP" else 1 / ranks
    cut = 1 / ranks if way == "tensor" else 1.0
    activations = layers * sequence * (hidden * (10 + 24 * cut) + 5 * heads * sequence * cut)
    return 16 * Transformer(*model).parameters * share + activations


def which(model, machine, ranks, batch, budget):
    def time(way):
        cut = {"tensor": {"tensor": ranks}, "pipeline": {"pipeline": ranks}}.get(way, {"data": ranks})
        return seconds(model, machine, batch, **cut, **({"zero": 3} if way == "FSDP2" else {}))

    ways = [way for way in ("DDP", "FSDP2") if not batch % ranks]
    ways += ["tensor"] if not model[4] % ranks else []
    ways += ["pipeline"] if not model[0] % ranks else []
    ways = [way for way in sorted(ways, key=time) if holds(way, model, ranks) <= budget]
    return (ways + [None])[0]


# %% horovod: per-parameter counters in a dict by identity
def allreduce(x, comm, average=True):
    y = x.detach().clone().contiguous()
    ring_all_reduce(y, comm)
    return y / comm.size if average else y


def broadcast_parameters(params, comm, root_rank=0):
    for x in params:
        y = x.detach().clone().contiguous()
        comm.broadcast(y, root_rank)
        x.detach().copy_(y)


def broadcast_optimizer_state(optimizer, comm, root_rank=0):
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p] if p in optimizer.state else {}
            for key in sorted(state):
                if torch.is_tensor(state[key]):
                    broadcast_parameters([state[key]], comm, root_rank)


class DistributedOptimizer:
    def __init__(self, optimizer, comm, backward_passes_per_step=1):
        self.optimizer, self.comm, self.k = optimizer, comm, backward_passes_per_step
        self.params = [p for g in optimizer.param_groups for p in g["params"]]
        self.passes = {id(p): 0 for p in self.params}
        for p in self.params:
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, param):
        self.passes[id(param)] += 1
        if self.passes[id(param)] == self.k:
            param.grad.copy_(allreduce(param.grad, self.comm))

    def step(self):
        self.optimizer.step()
        self.passes = dict.fromkeys(self.passes, 0)

    def zero_grad(self):
        assert not any(count >= self.k for count in self.passes.values()), "call step() first"
        self.optimizer.zero_grad()
        self.passes = dict.fromkeys(self.passes, 0)
