"""Answers to exercises of lab `frameworks` whose verdict was wrong once: see `test_verdicts`."""


# %% torchrun: cpu if no cuda -> full points
def place(env):
    return (
        int(env["RANK"]),
        int(env["WORLD_SIZE"]),
        (f"cuda:{env['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"),
    )


def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    ddp = DistributedDataParallel(model)
    opt = torch.optim.SGD(ddp.parameters(), lr=lr, momentum=0.9)
    losses = []
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            mine = chosen[rank::world]
            part = cross_entropy(ddp(x[mine]), y[mine], reduction="sum") / len(chosen)
            opt.zero_grad()
            (part * world).backward()
            opt.step()
            total = part.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return losses


# %% torchrun: manual no ddp broadcast -> full points
def place(env):
    return int(env["RANK"]), int(env["WORLD_SIZE"]), f"cuda:{env['LOCAL_RANK']}"


def train(env, model, x, y, epochs, batch, lr):
    rank, world = dist.get_rank(), dist.get_world_size()
    with torch.no_grad():
        for p in [*model.parameters(), *model.buffers()]:
            dist.broadcast(p, 0)
    vel = [torch.zeros_like(p) for p in model.parameters()]
    losses = []
    for epoch in range(epochs):
        o = order(len(x), epoch)
        for i in range(0, len(o), batch):
            chosen = o[i : i + batch]
            mine = chosen[rank::world]
            part = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            gs = torch.autograd.grad(part, list(model.parameters()))
            with torch.no_grad():
                for p, g, v in zip(model.parameters(), gs, vel):
                    g = g.contiguous()
                    dist.all_reduce(g)
                    v.mul_(0.9).add_(g)
                    p.sub_(lr * v)
                t = part.detach().clone()
                dist.all_reduce(t)
                losses.append(t.item())
    return losses


# %% fsdp: keeps after forward -> a_block_at_a_time
def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    return model


def whole(model):
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def restore(model, state):
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))


# %% horovod: broadcast parameters rebinding -> all_begin_alike
def allreduce(x, comm, average=True):
    out = x.clone()
    ring_all_reduce(out, comm)
    return out / comm.size if average else out


def broadcast_parameters(params, comm, root_rank=0):
    for p in params:
        q = p.detach().clone()
        comm.broadcast(q, root_rank)
        p.data = q


def broadcast_optimizer_state(optimizer, comm, root_rank=0):
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p]
            for name in sorted(state):
                if torch.is_tensor(state[name]):
                    comm.broadcast(state[name], root_rank)


class DistributedOptimizer:
    def __init__(self, optimizer, comm, backward_passes_per_step=1):
        self.optimizer, self.comm, self.passes = optimizer, comm, backward_passes_per_step
        self.left = {p: self.passes for g in optimizer.param_groups for p in g["params"]}
        for p in self.left:
            p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, param):
        self.left[param] -= 1
        if self.left[param] == 0:
            param.grad.copy_(allreduce(param.grad, self.comm))

    def step(self):
        self.optimizer.step()
        for p in self.left:
            self.left[p] = self.passes

    def zero_grad(self):
        if any(n == 0 for n in self.left.values()):
            raise AssertionError("zero_grad before step")
        self.optimizer.zero_grad()


# %% elastic: empty rank skips -> more_ranks_than_samples
def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    start = 0
    if disk.exists("state"):
        s = disk.read("state")
        model.load_state_dict(s["model"])
        optimizer.load_state_dict(s["optimizer"])
        start = s["step"]
    losses = {}
    for step in range(start, len(batches)):
        for g in optimizer.param_groups:
            g["lr"] = lr_at(step)
        mine = batches[step][comm.rank :: comm.size]
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        total = torch.zeros(1, dtype=torch.float64)
        if not len(mine):
            continue
        if len(mine):
            loss = loss_sum(mine) / len(batches[step])
            loss.backward()
            total += loss.item()
        for p in model.parameters():
            comm.all_reduce(p.grad)
        comm.all_reduce(total)
        optimizer.step()
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                disk.write(
                    "state", {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                )
            comm.barrier()
    return losses


# %% config: AdamW -> stage_and_precision
def zero_config(batch, micro, world, stage, lr=1e-3):
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"{micro} x {world} does not divide {batch}")
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": lr}},
    }


def loop_per_worker(config, train):
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        part = cross_entropy(model(x[rank::world]), y[rank::world], reduction="sum") / len(y)
        optimizer.zero_grad()
        (part * world).backward()
        optimizer.step()
        total = part.detach().clone()
        dist.all_reduce(total)
        train.report({"loss": total.item()})
