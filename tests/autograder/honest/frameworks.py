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
