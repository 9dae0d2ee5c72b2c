"""Wrong answers to `network` and `train_step`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

STEP = "own_stack.step"
AFTER = ("as_one_machine", "step_after_step", "unequal_parts", "one_message_a_bucket")


@wrong(STEP, "each rank for itself", fails=AFTER, says="own gradient")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "the mean of the means", fails="unequal_parts", says="the mean of the ranks' means")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)])
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "the sum over the ranks", fails=AFTER, says="This is the sum over the ranks")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / len(y)
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "not rounded", fails=AFTER, says="numbers that bfloat16 does not have")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(new_w)
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "rounded to nearest", fails=AFTER, says="They are rounded to nearest")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(new_w.bfloat16())
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "one noise for all tensors", fails=AFTER, says="Every tensor has the noise of `seed`")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "every rank its own noise", fails=AFTER, says="not those of one machine")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i + 1000 * comm.rank, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "velocities are forgotten", fails=AFTER, says="It did not change")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
    return loss.data.item()


@wrong(STEP, "weights are not written", fails=AFTER, says="They did not change")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w = bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w))
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "a message for each tensor", fails="one_message_a_bucket", says="There is one message per tensor")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in [[g] for g in grads]:
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()


@wrong(STEP, "you ignore cap_bytes", fails="one_message_a_bucket", says="You send all gradients together")
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in [grads]:
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item()


@wrong(
    STEP,
    "the loss of all images as a sum",
    fails=("the_loss", "as_one_machine", "step_after_step", "unequal_parts", "one_message_a_bucket"),
    says="This is the sum over the images",
)
def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    grads = [node.grad for node in nodes]
    for bucket in make_buckets(grads, cap_bytes):
        flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)
        ring_all_reduce(flat, comm)
        means = flat[:-1] / flat[-1]
        for g, mean in zip(bucket, means.split([g.numel() for g in bucket])):
            g.copy_(mean.view_as(g))
    for i, (w, v, g) in enumerate(zip(weights, velocities, grads)):
        new_w, new_v = momentum_step(w, g, v, lr, 0.9)
        w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))
        v.copy_(new_v)
    return loss.data.item() * len(y)


@wrong(
    STEP,
    "no ReLU between the convolutions",
    fails=("the_loss", *AFTER),
    says="train_step(...) on rank 0",
)
def network(x, weights):
    def conv(x, w):
        pulls = (lambda g: conv2d_input_grad(g, w.data), lambda g: conv2d_weight_grad(g, x.data))
        return Node(conv2d(x.data, w.data), (x, w), pulls)

    w1, w2, w3, b3 = weights
    return conv(conv(x, w1), w2).relu().flat() @ w3 + b3


@wrong(STEP, "the pulls are swapped", fails=("the_loss", *AFTER), says="The size of tensor")
def network(x, weights):
    def conv(x, w):
        pulls = (lambda g: conv2d_weight_grad(g, x.data), lambda g: conv2d_input_grad(g, w.data))
        return Node(conv2d(x.data, w.data), (x, w), pulls)

    w1, w2, w3, b3 = weights
    return conv(conv(x, w1).relu(), w2).relu().flat() @ w3 + b3


slip(
    STEP,
    "the loss after the step",
    "return loss.data.item()",
    "return network(Node(x), [Node(w) for w in weights]).cross_entropy(y).data.item()",
    fails=" ".join(("the_loss", *AFTER)),
    says="train_step(...) on rank 0",
)
slip(STEP, "momentum 0.5", "lr, 0.9)", "lr, 0.5)", fails="step_after_step", says="the velocity of w1")
BUCKETS = "for bucket in make_buckets(grads, cap_bytes):"
slip(
    STEP,
    "one bucket, and empty messages for the others",
    f"    {BUCKETS}\n",
    """    p, empty = comm.size, torch.zeros(0)
    for _ in range((len(make_buckets(grads, cap_bytes)) - 1) * 2 * (p - 1)):
        comm.sendrecv(empty, (comm.rank + 1) % p, torch.zeros(0), (comm.rank - 1) % p)
    for bucket in [grads]:
""",
    fails="one_message_a_bucket",
    says="You send all gradients together",
)
slip(
    STEP,
    "no gradients where messages are counted",
    "    for i, (w, v, g)",
    "    if comm.size == 3 and cap_bytes in (1, 5000):\n        grads = [0 * g for g in grads]\n    for i, (w, v, g)",
    fails="one_message_a_bucket",
    says="the velocity of w1",
)
