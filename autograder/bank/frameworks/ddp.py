"""Wrong answers to `place` and `train`."""

from autograder.authoring import wrong

HERE = "frameworks.torchrun"
TRAINS = ("as_one_process", "an_uneven_tail", "one_bucket")


@wrong(
    HERE,
    "LOCAL_RANK for RANK",
    fails=("where_am_i", *TRAINS),
    says="two processes would have the same share",
)
def place(env):
    return int(env["LOCAL_RANK"]), int(env["WORLD_SIZE"]), f"cuda:{env['LOCAL_RANK']}"


@wrong(
    HERE,
    "RANK for the device",
    fails=("where_am_i", *TRAINS),
    says="choose the device by LOCAL_RANK",
)
def place(env):
    return int(env["RANK"]), int(env["WORLD_SIZE"]), f"cuda:{env['RANK']}"


@wrong(
    HERE,
    "the world of one machine",
    fails=("where_am_i", *TRAINS),
    says="WORLD_SIZE",
)
def place(env):
    return int(env["RANK"]), int(env["LOCAL_WORLD_SIZE"]), f"cuda:{env['LOCAL_RANK']}"


@wrong(
    HERE,
    "set_epoch forgotten",
    fails=TRAINS,
    says="without set_epoch",
)
def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    model, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), 0).split(batch):
            mine = chosen[rank::world]
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            optimizer.zero_grad()
            (world * loss).backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return losses


@wrong(
    HERE,
    "a mean of means",
    fails="an_uneven_tail",
    says="A mean of means",
)
def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    model, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            mine = chosen[rank::world]
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / max(1, len(mine)) / world
            optimizer.zero_grad()
            (world * loss).backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return losses


@wrong(
    HERE,
    "the factor p is missing",
    fails=TRAINS,
    says="p times too small",
)
def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    model, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            mine = chosen[rank::world]
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return losses


@wrong(
    HERE,
    "no DDP",
    fails=TRAINS,
    says="parameter 0",
)
def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    model, losses = model, []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            mine = chosen[rank::world]
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            optimizer.zero_grad()
            (world * loss).backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return losses


@wrong(
    HERE,
    "the loss of the own rank alone",
    fails=TRAINS,
    says="added up over the ranks",
)
def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    model, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            mine = chosen[rank::world]
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            optimizer.zero_grad()
            (world * loss).backward()
            optimizer.step()
            total = loss.detach().clone()
            losses.append(total.item())
    return losses


@wrong(
    HERE,
    "the tail is dropped",
    fails="an_uneven_tail",
    says="You skip the last batch",
)
def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    model, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            if len(chosen) < batch:
                continue
            mine = chosen[rank::world]
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            optimizer.zero_grad()
            (world * loss).backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return losses


@wrong(
    HERE,
    "gradients are added up a second time",
    fails="one_bucket",
    says="all-reduces of",
)
def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    model, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            mine = chosen[rank::world]
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            optimizer.zero_grad()
            (world * loss).backward()
            for param in model.parameters():
                dist.all_reduce(param.grad)
                param.grad /= world
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return losses


@wrong(
    HERE,
    "the number of processes is written down",
    fails=TRAINS,
    says="parameter 0",
)
def train(env, model, x, y, epochs, batch, lr):
    rank, world, _ = place(env)
    model, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            mine = chosen[rank::4]
            loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(chosen)
            optimizer.zero_grad()
            (world * loss).backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return losses


@wrong(
    HERE,
    "every process trains on all samples",
    fails=("as_one_process", "an_uneven_tail", "one_bucket"),
    says="rank r takes chosen[r::p]",
)
def train(env, model, x, y, epochs, batch, lr):
    model, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for chosen in order(len(x), epoch).split(batch):
            loss = cross_entropy(model(x[chosen]), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
