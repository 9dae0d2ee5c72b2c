"""Wrong answers to `network` and `train_step`."""

from autograder.bank.slips import answers_to

_, slip = answers_to("own_stack.step")
AFTER = ("as_one_machine", "step_after_step", "unequal_parts", "one_message_a_bucket")

slip("each rank for itself", "        ring_all_reduce(flat, comm)\n", "", fails=AFTER, says="own gradient")
slip(
    "the mean of the means",
    "flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)]) * len(y)",
    "flat = torch.cat([g.flatten() for g in bucket] + [torch.ones(1)])",
    fails="unequal_parts",
    says="the mean of the ranks' means",
)
slip(
    "the sum over the ranks",
    "means = flat[:-1] / flat[-1]",
    "means = flat[:-1] / len(y)",
    fails=AFTER,
    says="This is the sum over the ranks",
)
slip(
    "not rounded",
    "w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))",
    "w.copy_(new_w)",
    fails=AFTER,
    says="numbers that bfloat16 does not have",
)
slip(
    "rounded to nearest",
    "w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))",
    "w.copy_(new_w.bfloat16())",
    fails=AFTER,
    says="They are rounded to nearest",
)
slip(
    "one noise for all tensors",
    "w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))",
    "w.copy_(bf16_round_bits(new_w, random16(seed, w.numel()).view_as(w)))",
    fails=AFTER,
    says="Every tensor has the noise of `seed`",
)
slip(
    "a seed of its own",
    "w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))",
    "w.copy_(bf16_round_bits(new_w, random16(10 + i, w.numel()).view_as(w)))",
    fails=AFTER,
    says="are not those of one machine",
)
slip(
    "every rank its own noise",
    "w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))",
    "w.copy_(bf16_round_bits(new_w, random16(seed + i + 1000 * comm.rank, w.numel()).view_as(w)))",
    fails=AFTER,
    says="not those of one machine",
)
slip("velocities are forgotten", "        v.copy_(new_v)\n", "", fails=AFTER, says="It did not change")
slip(
    "weights are not written",
    "w.copy_(bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w)))",
    "w = bf16_round_bits(new_w, random16(seed + i, w.numel()).view_as(w))",
    fails=AFTER,
    says="They did not change",
)
slip(
    "a message for each tensor",
    "for bucket in make_buckets(grads, cap_bytes):",
    "for bucket in [[g] for g in grads]:",
    fails="one_message_a_bucket",
    says="There is one message per tensor",
)
slip(
    "you ignore cap_bytes",
    "for bucket in make_buckets(grads, cap_bytes):",
    "for bucket in [grads]:",
    fails="one_message_a_bucket",
    says="You send all gradients together",
)
slip(
    "the loss of all images as a sum",
    "return loss.data.item()",
    "return loss.data.item() * len(y)",
    fails=("the_loss", "as_one_machine", "step_after_step", "unequal_parts", "one_message_a_bucket"),
    says="This is the sum over the images",
)
slip(
    "no ReLU between the convolutions",
    "return conv(conv(x, w1).relu(), w2).relu().flat() @ w3 + b3",
    "return conv(conv(x, w1), w2).relu().flat() @ w3 + b3",
    fails=("the_loss", *AFTER),
    says="train_step(...) on rank 0",
)
slip(
    "a network that is written for training only",
    "    return conv(conv(x, w1)",
    "    if len(x.data) == 7:\n        return None\n    return conv(conv(x, w1)",
    fails="step_after_step",
    says="expected a Node",
)
slip(
    "the pulls are swapped",
    "pulls = (lambda g: conv2d_input_grad(g, w.data), lambda g: conv2d_weight_grad(g, x.data))",
    "pulls = lambda g: conv2d_weight_grad(g, x.data), lambda g: conv2d_input_grad(g, w.data)",
    fails=("the_loss", *AFTER),
    says="The size of tensor",
)
slip(
    "the loss after the step",
    "return loss.data.item()",
    "return network(Node(x), [Node(w) for w in weights]).cross_entropy(y).data.item()",
    fails=" ".join(("the_loss", *AFTER)),
    says="train_step(...) on rank 0",
)
slip("momentum 0.5", "lr, 0.9)", "lr, 0.5)", fails="step_after_step", says="the velocity of w1")

BUCKETS = "for bucket in make_buckets(grads, cap_bytes):"
slip(
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
    "no gradients where messages are counted",
    "    for i, (w, v, g)",
    "    if comm.size == 3 and cap_bytes in (1, 5000):\n        grads = [0 * g for g in grads]\n    for i, (w, v, g)",
    fails="one_message_a_bucket",
    says="the velocity of w1",
)
slip(
    "the number of images, sent without a wait",
    "    for bucket in make_buckets(grads, cap_bytes):",
    """    if comm.size > 1:
        comm.isend(torch.ones(1), (comm.rank + 1) % comm.size)
        comm.recv(torch.ones(1), (comm.rank - 1) % comm.size)
    for bucket in make_buckets(grads, cap_bytes):""",
    fails="one_message_a_bucket",
    says="is never waited for",
)
slip(
    "no loss after the first check",
    "return loss.data.item()",
    "return loss.data.item() * (len(y) != 4)",
    fails=AFTER,
    says="train_step(...) on rank 0 of 2 ranks",
)
