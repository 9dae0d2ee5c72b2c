"""Wrong answers to lab 07, ddp."""

import torch
from torch.nn.functional import cross_entropy

from autograder.authoring import wrong
from hpcdl.collectives import ring_all_reduce

CAP, InFlight = 25 * 2**20, None  # names of the notebook that these answers use
AFTER_THE_SHARDS = ("every_sample_once", "equal_lengths", "new_each_epoch", "same_permutation_again")
ALL_OF_BROADCAST = ("all_have_rank_0s", "any_root", "in_place")
ALL_OF_RING = ("whole_chunks", "any_p_and_n", "neighbours_only", "few_bytes", "all_at_once", "the_same_bits")
ALL_OF_AVERAGE = ("equal_batches", "unequal_batches", "a_rank_without_samples", "one_all_reduce")
ALL_OF_BUCKETS = (
    "in_reverse",
    "full_up_to_the_cap",
    "a_parameter_larger_than_the_cap",
    "extreme_caps",
    "the_same_on_every_rank",
)
ALL_OF_STEP = (
    "as_one_machine",
    "returns_its_loss",
    "unequal_parts",
    "tied_and_frozen",
    "unused",
    "one_message_per_bucket",
)
TIMED = ("a_message_for_each_bucket", "sends_before_the_last_gradient", "communication_is_hidden")
AFTER_THE_RESULTS = ("results_unchanged", "awkward_parameters", *TIMED)
ALL_OF_OVERLAP = ("begins_with_rank_0s", *AFTER_THE_RESULTS)


def of(exercise: str, checks: tuple[str, ...]) -> tuple[str, ...]:
    """Checks of another exercise, whose answer calls this one."""
    return tuple(f"{exercise}.{check}" for check in checks)


STEPS = of("train_step", ALL_OF_STEP)
OVERLAPS = of("OverlappedDDP", AFTER_THE_RESULTS)
AVERAGES = of("average_gradients", ALL_OF_AVERAGE)

# -------------------------------------------------------------------------------------------- shard_indices

SHARD = "ddp.shard_indices"


@wrong(SHARD, "each rank draws its own permutation", fails=AFTER_THE_SHARDS, says="Shards overlap")
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch + rank))
    return order[rank::size]


@wrong(SHARD, "not seeded at all", fails=AFTER_THE_SHARDS, says="Shards overlap")
def shard_indices(n, rank, size, epoch, seed):
    return torch.randperm(n)[rank::size]


@wrong(SHARD, "drops the rest", fails=AFTER_THE_SHARDS, says="The rest is left out")
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    m = n // size
    return order[rank * m : (rank + 1) * m]


@wrong(SHARD, "repeats samples to fill up", fails=AFTER_THE_SHARDS, says="Samples are repeated")
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    missing = -n % size
    while missing:
        order = torch.cat([order, order[:missing]])
        missing = -len(order) % size
    return order[rank::size]


@wrong(SHARD, "everyone takes all", fails=AFTER_THE_SHARDS, says="a shard is its part")
def shard_indices(n, rank, size, epoch, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))


@wrong(SHARD, "the rest to the last rank", fails="equal_lengths", says="spread what is left over")
def shard_indices(n, rank, size, epoch, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    m = n // size
    return order[rank * m : (rank + 1) * m if rank < size - 1 else n]


@wrong(SHARD, "splits first, then shuffles", fails="new_each_epoch", says="permute all n samples before")
def shard_indices(n, rank, size, epoch, seed):
    mine = torch.arange(rank, n, size)
    return mine[torch.randperm(len(mine), generator=torch.Generator().manual_seed(seed + epoch))]


@wrong(SHARD, "never shuffles", fails=("new_each_epoch", "same_permutation_again"), says="is not shuffled")
def shard_indices(n, rank, size, epoch, seed):
    return torch.arange(rank, n, size)


@wrong(SHARD, "forgets the epoch", fails="new_each_epoch", says="Seed the generator with the epoch too")
def shard_indices(n, rank, size, epoch, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[rank::size]


@wrong(SHARD, "forgets the seed", fails="same_permutation_again", says="seed is ignored")
def shard_indices(n, rank, size, epoch, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))[rank::size]


# ------------------------------------------------------------------------------------- broadcast_parameters

BROADCAST = "ddp.broadcast_parameters"
BEGINS = of("OverlappedDDP", ALL_OF_OVERLAP)


@wrong(
    BROADCAST,
    "takes the mean",
    fails=(*ALL_OF_BROADCAST, *BEGINS),
    says="These are the means over the ranks",
)
def broadcast_parameters(params, comm, root=0):
    for param in params:
        comm.all_reduce(param.detach())
        param.detach().div_(comm.size)


@wrong(BROADCAST, "always rank 0's", fails="any_root", says="These are rank 0's")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        comm.broadcast(param.detach(), 0)


@wrong(BROADCAST, "receives into a copy", fails=(*ALL_OF_BROADCAST, *BEGINS), says="the root's never came")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        copy = param.detach().clone()
        comm.broadcast(copy, root)
        param = copy


@wrong(BROADCAST, "puts new tensors into the list", fails=("in_place", *BEGINS), says="was replaced in the list")
def broadcast_parameters(params, comm, root=0):
    params = params if isinstance(params, list) else list(params)
    for i, param in enumerate(params):
        copy = param.detach().clone()
        comm.broadcast(copy, root)
        params[i] = copy


@wrong(BROADCAST, "sends to the next rank only", fails=(*ALL_OF_BROADCAST, *BEGINS), says="the root's never came")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        if comm.rank == root and comm.size > 1:
            comm.send(param.detach(), (root + 1) % comm.size)
        elif comm.rank == (root + 1) % comm.size and comm.size > 1:
            comm.recv(param.detach(), root)


@wrong(BROADCAST, "everybody waits for the root", fails=(*ALL_OF_BROADCAST, *BEGINS), says="a deadlock")
def broadcast_parameters(params, comm, root=0):
    for param in params:
        comm.recv(param.detach(), root)


# ------------------------------------------------------------------------------------------ ring_all_reduce

RING = "ddp.ring_all_reduce"


@wrong(RING, "send, then receive", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="use sendrecv, or let one side")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.send(given, (rank + 1) % p)
        comm.recv(incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(
    RING, "even ranks send first, odd ones receive", fails="all_at_once", says="sends to the right and receives from"
)
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        if rank % 2 == 0:
            comm.send(given, (rank + 1) % p)
            comm.recv(incoming, (rank - 1) % p)
        else:
            comm.recv(incoming, (rank - 1) % p)
            comm.send(given, (rank + 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(
    RING,
    "the whole x goes round",
    fails=("few_bytes", "the_same_bits", *STEPS),
    says="The whole x goes round",
)
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    passing, incoming = x.clone(), torch.empty_like(x)
    for _ in range(p - 1):
        comm.sendrecv(passing, (rank + 1) % p, incoming, (rank - 1) % p)
        x += incoming
        passing.copy_(incoming)


@wrong(RING, "adds in the second half too", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="counts 2 times")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        taken += incoming


@wrong(RING, "stops after the first half", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="is missing")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(p - 1):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        taken += incoming


@wrong(RING, "chunks of n // p", fails=("any_p_and_n", "the_same_bits", *AVERAGES, *STEPS), says="is missing")
def ring_all_reduce(x, comm):
    p, rank, flat = comm.size, comm.rank, x.view(-1)
    m = len(flat) // p
    chunks = [flat[i * m : (i + 1) * m] for i in range(p)]
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(RING, "one step too few", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="is missing")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.view(-1).tensor_split(p)
    for step in range(2 * (p - 1) - 1):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


@wrong(
    RING,
    "a star",
    fails=("neighbours_only", "few_bytes"),
    says="which is not its neighbour on the ring",
)
def ring_all_reduce(x, comm):
    if comm.rank:
        comm.send(x, 0)
        comm.recv(x, 0)
        return
    incoming = torch.empty_like(x)
    for source in range(1, comm.size):
        comm.recv(incoming, source)
        x += incoming
    for dest in range(1, comm.size):
        comm.send(x, dest)


@wrong(RING, "the machine's own", fails=ALL_OF_RING, says="calls comm.all_reduce")
def ring_all_reduce(x, comm):
    comm.all_reduce(x)


@wrong(RING, "a copy is summed", fails=(*ALL_OF_RING, *AVERAGES, *STEPS), says="what it was before the call")
def ring_all_reduce(x, comm):
    p, rank = comm.size, comm.rank
    chunks = x.clone().view(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        given, taken = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        incoming = torch.empty_like(taken)
        comm.sendrecv(given, (rank + 1) % p, incoming, (rank - 1) % p)
        if step < p - 1:
            taken += incoming
        else:
            taken.copy_(incoming)


# ---------------------------------------------------------------------------------------- average_gradients

AVERAGE = "ddp.average_gradients"


@wrong(
    AVERAGE,
    "mean of means",
    fails=("unequal_batches", "a_rank_without_samples", "train_step.unequal_parts"),
    says="the mean of the ranks' means",
)
def average_gradients(grads, local_n, comm):
    flat = torch.cat([grad.flatten() for grad in grads])
    ring_all_reduce(flat, comm)
    for grad, mean in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(mean.view_as(grad) / comm.size)


@wrong(AVERAGE, "the sum", fails=(*ALL_OF_AVERAGE, *STEPS), says="This is the sum of the gradients")
def average_gradients(grads, local_n, comm):
    flat = torch.cat([grad.flatten() for grad in grads])
    ring_all_reduce(flat, comm)
    for grad, total in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(total.view_as(grad))


@wrong(AVERAGE, "weights but divides by p", fails=(*ALL_OF_AVERAGE, *STEPS), says="divide by N")
def average_gradients(grads, local_n, comm):
    flat = torch.cat([grad.flatten() for grad in grads]) * local_n
    ring_all_reduce(flat, comm)
    for grad, total in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(total.view_as(grad) / comm.size)


@wrong(
    AVERAGE,
    "a message per tensor",
    fails=("one_all_reduce", "train_step.one_message_per_bucket"),
    says="put all into one flat tensor first",
)
def average_gradients(grads, local_n, comm):
    total = torch.tensor([float(local_n)])
    ring_all_reduce(total, comm)
    for grad in grads:
        grad *= local_n
        ring_all_reduce(grad, comm)
        grad /= total


@wrong(
    AVERAGE,
    "n_r travels alone",
    fails=("one_all_reduce", "train_step.one_message_per_bucket"),
    says="append it to the gradients",
)
def average_gradients(grads, local_n, comm):
    total = torch.tensor([float(local_n)])
    ring_all_reduce(total, comm)
    flat = torch.cat([grad.flatten() for grad in grads]) * local_n
    ring_all_reduce(flat, comm)
    for grad, mean in zip(grads, (flat / total).split([grad.numel() for grad in grads])):
        grad.copy_(mean.view_as(grad))


@wrong(AVERAGE, "returns new tensors", fails=(*ALL_OF_AVERAGE, *STEPS), says="Write the mean into it")
def average_gradients(grads, local_n, comm):
    flat = torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)]) * local_n
    ring_all_reduce(flat, comm)
    means = flat[:-1] / flat[-1]
    return [m.view_as(grad) for grad, m in zip(grads, means.split([grad.numel() for grad in grads]))]


@wrong(
    AVERAGE,
    "a rank without samples stays away",
    fails=("a_rank_without_samples", "train_step.unequal_parts"),
    says="a deadlock",
)
def average_gradients(grads, local_n, comm):
    if local_n == 0:
        return
    flat = torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)]) * local_n
    ring_all_reduce(flat, comm)
    means = flat[:-1] / flat[-1]
    for grad, mean in zip(grads, means.split([grad.numel() for grad in grads])):
        grad.copy_(mean.view_as(grad))


# --------------------------------------------------------------------------------------------- make_buckets

BUCKETS = "ddp.make_buckets"
EARLY = of("OverlappedDDP", ("sends_before_the_last_gradient", "communication_is_hidden"))


@wrong(BUCKETS, "forwards", fails=(*ALL_OF_BUCKETS, *EARLY), says="the order of the forward pass")
def make_buckets(params, cap_bytes):
    buckets, filled = [], 0
    for param in params:
        if not buckets or filled + param.nbytes > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.nbytes
    return buckets


@wrong(BUCKETS, "forwards within a bucket", fails=ALL_OF_BUCKETS, says="within a bucket the parameters stand")
def make_buckets(params, cap_bytes):
    buckets, filled = [], 0
    for param in reversed(params):
        if not buckets or filled + param.nbytes > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].insert(0, param)
        filled += param.nbytes
    return buckets


@wrong(
    BUCKETS,
    "counts elements",
    fails=("full_up_to_the_cap", "a_parameter_larger_than_the_cap", "OverlappedDDP.communication_is_hidden"),
    says="cap_bytes counts bytes",
)
def make_buckets(params, cap_bytes):
    buckets, filled = [], 0
    for param in reversed(params):
        if not buckets or filled + param.numel() > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.numel()
    return buckets


@wrong(BUCKETS, "four bytes each", fails="full_up_to_the_cap", says="the buckets hold the parameters")
def make_buckets(params, cap_bytes):
    buckets, filled = [], 0
    for param in reversed(params):
        if not buckets or filled + 4 * param.numel() > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += 4 * param.numel()
    return buckets


@wrong(BUCKETS, "exactly full is too full", fails="full_up_to_the_cap", says="compare with >, not >=")
def make_buckets(params, cap_bytes):
    buckets, filled = [], 0
    for param in reversed(params):
        if not buckets or filled + param.nbytes >= cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.nbytes
    return buckets


@wrong(
    BUCKETS,
    "closes a bucket once it is over the cap",
    fails=("full_up_to_the_cap", "a_parameter_larger_than_the_cap"),
    says="as full as the cap allows",
)
def make_buckets(params, cap_bytes):
    buckets, bucket, filled = [], [], 0
    for param in reversed(params):
        bucket.append(param)
        filled += param.nbytes
        if filled >= cap_bytes:
            buckets.append(bucket)
            bucket, filled = [], 0
    return buckets + [bucket] if bucket else buckets


@wrong(
    BUCKETS,
    "an empty bucket before a large parameter",
    fails=("a_parameter_larger_than_the_cap", "extreme_caps"),
    says="begin a new bucket only where the last one holds something",
)
def make_buckets(params, cap_bytes):
    buckets, filled = [[]], 0
    for param in reversed(params):
        if filled + param.nbytes > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.nbytes
    return buckets


@wrong(BUCKETS, "forgets the last bucket", fails=(*ALL_OF_BUCKETS, *STEPS, *OVERLAPS), says="is there 0 times")
def make_buckets(params, cap_bytes):
    buckets, bucket, filled = [], [], 0
    for param in reversed(params):
        if bucket and filled + param.nbytes > cap_bytes:
            buckets.append(bucket)
            bucket, filled = [], 0
        bucket.append(param)
        filled += param.nbytes
    return buckets


@wrong(
    BUCKETS,
    "leaves out what is larger than the cap",
    fails=("a_parameter_larger_than_the_cap", "extreme_caps", *STEPS, *OVERLAPS),
    says="the buckets hold the parameters",
)
def make_buckets(params, cap_bytes):
    buckets, filled = [], 0
    for param in reversed(params):
        if param.nbytes > cap_bytes:
            continue
        if not buckets or filled + param.nbytes > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.nbytes
    return buckets


@wrong(BUCKETS, "the smallest first", fails=(*ALL_OF_BUCKETS, *EARLY), says="in the order of the buckets they are")
def make_buckets(params, cap_bytes):
    buckets, filled = [], 0
    for param in sorted(params, key=lambda param: param.nbytes):
        if not buckets or filled + param.nbytes > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.nbytes
    return buckets


# ----------------------------------------------------------------------------------------------- train_step

STEP = "ddp.train_step"


@wrong(STEP, "each rank alone", fails=ALL_OF_STEP, says="a step with its own gradients")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    with torch.no_grad():
        for param in model.parameters():
            if param.grad is not None:
                param -= lr * param.grad
    return loss.item()


@wrong(STEP, "zero_grad is missing", fails=("as_one_machine", *ALL_OF_STEP[1:]), says="begin with model.zero_grad()")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    with torch.no_grad():
        for bucket in make_buckets(params, cap_bytes):
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param -= lr * grad
    return loss.item()


@wrong(STEP, "uphill", fails=ALL_OF_STEP, says="The step goes uphill")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    with torch.no_grad():
        for bucket in make_buckets(params, cap_bytes):
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param += lr * grad
    return loss.item()


@wrong(STEP, "one sample per rank, whatever it has", fails="unequal_parts", says="the mean of the ranks' means")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    with torch.no_grad():
        for bucket in make_buckets(params, cap_bytes):
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
            average_gradients(grads, 1, comm)
            for param, grad in zip(bucket, grads):
                param -= lr * grad
    return loss.item()


@wrong(STEP, "forgets that parameters may be unused", fails="unused", says="NoneType")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    with torch.no_grad():
        for bucket in make_buckets(params, cap_bytes):
            grads = [param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param -= lr * grad
    return loss.item()


@wrong(STEP, "leaves unused parameters out of the buckets", fails="unused", says="both sides need the same")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.grad is not None]
    with torch.no_grad():
        for bucket in make_buckets(params, cap_bytes):
            grads = [param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param -= lr * grad
    return loss.item()


@wrong(
    STEP,
    "each rank begins with another bucket",
    fails=("as_one_machine", *ALL_OF_STEP[1:]),
    says="both sides need the same",
)
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    buckets = make_buckets(params, cap_bytes)
    first = comm.rank % len(buckets)
    with torch.no_grad():
        for bucket in buckets[first:] + buckets[:first]:
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param -= lr * grad
    return loss.item()


@wrong(
    STEP, "module by module, a tied weight twice", fails="tied_and_frozen", says="One machine that trains on all ranks'"
)
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    for param in params:
        param.grad = torch.zeros_like(param) if param.grad is None else param.grad
    for bucket in make_buckets(params, cap_bytes):
        average_gradients([param.grad for param in bucket], len(x), comm)
    with torch.no_grad():
        for module in model.modules():
            for param in module.parameters(recurse=False):
                if param.requires_grad:
                    param -= lr * param.grad
    return loss.item()


@wrong(STEP, "frozen parameters learn", fails="tied_and_frozen", says="does not require grad")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    for param, gradient in zip(model.parameters(), gradients):
        param.grad = torch.zeros_like(param) if gradient is None else gradient
    with torch.no_grad():
        for bucket in make_buckets(list(model.parameters()), cap_bytes):
            grads = [param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param -= lr * grad
    return loss.item()


@wrong(STEP, "a message per tensor", fails="one_message_per_bucket", says="There is one message per tensor")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                grad = torch.zeros_like(param) if param.grad is None else param.grad
                average_gradients([grad], len(x), comm)
                param -= lr * grad
    return loss.item()


@wrong(STEP, "ignores the cap", fails="one_message_per_bucket", says="cap_bytes is ignored")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    with torch.no_grad():
        for bucket in make_buckets(params, CAP):
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param -= lr * grad
    return loss.item()


@wrong(STEP, "returns nothing", fails="returns_its_loss", says="expected a number")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    cross_entropy(model(x), y).backward()
    params = [param for param in model.parameters() if param.requires_grad]
    with torch.no_grad():
        for bucket in make_buckets(params, cap_bytes):
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param -= lr * grad


# -------------------------------------------------------------------------------------------- OverlappedDDP
OVERLAP = "ddp.OverlappedDDP"


@wrong(OVERLAP, "replicas stay different", fails=ALL_OF_OVERLAP, says="broadcast rank 0's when the object is made")
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(OVERLAP, "broadcasts what learns only", fails=ALL_OF_OVERLAP, says="still has its own weights")
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters([param for param in model.parameters() if param.requires_grad], comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP,
    "nothing before synchronize",
    fails=("sends_before_the_last_gradient", "communication_is_hidden"),
    says="and the last gradient comes at",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP, "waits in the hook for all of it", fails="communication_is_hidden", says="the backward pass stands still"
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
            self.flights[-1].finish()

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
            self.flights[-1].finish()


@wrong(
    OVERLAP,
    "unused parameters are waited for",
    fails="awkward_parameters",
    says="One machine that trains on all ranks'",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP,
    "a bucket starts with its first gradient",
    fails=("results_unchanged", "awkward_parameters", *TIMED),
    says="One machine that trains on all ranks'",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        k = next(k for k, bucket in enumerate(self.buckets) if any(param is other for other in bucket))
        while len(self.flights) <= k:
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(OVERLAP, "whatever is ready goes first", fails="awkward_parameters", says="both sides need the same")
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights, self.open = len(x), set(), [], list(self.buckets)
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        for bucket in list(self.open):
            if self.ready.issuperset(bucket):
                self.open.remove(bucket)
                self.flights.append(InFlight(bucket, self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.open:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP,
    "every rank counts the same",
    fails=("results_unchanged", *TIMED, "awkward_parameters"),
    says="the mean of the ranks' means",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = 1, set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP,
    "forgets what was ready in the step before",
    fails=("results_unchanged", *TIMED, "awkward_parameters"),
    says="after 3 steps",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm, self.ready = model, comm, set()
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.flights = len(x), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP, "a bucket for each parameter", fails="a_message_for_each_bucket", says="There is one message per tensor"
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        self.buckets = [[param] for bucket in self.buckets for param in bucket]
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()
