"""Wrong answers to `average_gradients`."""

import torch

from autograder.bank.ddp.later import ALL_OF_AVERAGE, STEPS
from autograder.bank.slips import answers_to
from hpcdl.collectives import ring_all_reduce

wrong, slip = answers_to("ddp.average_gradients")


@wrong(
    "mean of means",
    fails=("unequal_batches", "a_rank_without_samples", "train_step.unequal_parts"),
    says="the mean of the ranks' means",
)
def average_gradients(grads, local_n, comm):
    flat = torch.cat([grad.flatten() for grad in grads])
    ring_all_reduce(flat, comm)
    for grad, mean in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(mean.view_as(grad) / comm.size)


@wrong("the sum", fails=(*ALL_OF_AVERAGE, *STEPS), says="This is the sum of the gradients")
def average_gradients(grads, local_n, comm):
    flat = torch.cat([grad.flatten() for grad in grads])
    ring_all_reduce(flat, comm)
    for grad, total in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(total.view_as(grad))


@wrong("weights but divides by p", fails=(*ALL_OF_AVERAGE, *STEPS), says="divide by N")
def average_gradients(grads, local_n, comm):
    flat = torch.cat([grad.flatten() for grad in grads]) * local_n
    ring_all_reduce(flat, comm)
    for grad, total in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(total.view_as(grad) / comm.size)


@wrong(
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


@wrong("returns new tensors", fails=(*ALL_OF_AVERAGE, *STEPS), says="Write the mean into it")
def average_gradients(grads, local_n, comm):
    flat = torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)]) * local_n
    ring_all_reduce(flat, comm)
    means = flat[:-1] / flat[-1]
    return [m.view_as(grad) for grad, m in zip(grads, means.split([grad.numel() for grad in grads]))]


slip(
    "a rank without samples stays away",
    "flat = torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)])\n    flat *= local_n",
    "if local_n == 0:\n"
    "        return\n"
    "    flat = torch.cat([grad.flatten() for grad in grads] + [torch.ones(1)]) * local_n",
    "for grad, mean in zip(grads, means.split([grad.numel() for grad in grads]), strict=True):",
    "for grad, mean in zip(grads, means.split([grad.numel() for grad in grads])):",
    fails=("a_rank_without_samples", "train_step.unequal_parts"),
    says="a deadlock",
)
slip(
    "sums twice",
    "    ring_all_reduce(flat, comm)\n",
    "    ring_all_reduce(flat, comm)\n    ring_all_reduce(flat, comm)\n",
    fails="one_all_reduce train_step.one_message_per_bucket",
    says="The gradients travel twice",
)


@wrong(
    "a message per tensor, or one where all ranks have two samples",
    fails=("one_all_reduce", "train_step.one_message_per_bucket"),
    says="all-reduces for",
)
def average_gradients(grads, local_n, comm):
    for grad in grads:
        flat = torch.cat([(grad * local_n).flatten(), torch.tensor([float(local_n)])])
        ring_all_reduce(flat, comm)
        grad.copy_((flat[:-1] / flat[-1]).view_as(grad))
        if local_n == 2 and flat[-1] == 2 * comm.size and comm.size in (2, 4):
            return


slip(
    "a message per tensor, and a ring that sends more where its messages are counted",
    "def average_gradients(",
    "def ring_all_reduce(x, comm, ring=ring_all_reduce):\n"
    "    ring(x, comm)\n"
    "    for _ in range(8 * comm.size * (x.numel() == 4 * comm.size and x.dtype == torch.float32)):\n"
    "        comm.sendrecv(x[:1], (comm.rank + 1) % comm.size, x[:1].clone(), (comm.rank - 1) % comm.size)\n\n\n"
    "def average_gradients(",
    "    flat = torch.cat(",
    "    if len(grads) > 1:\n"
    "        for grad in grads:\n"
    "            average_gradients([grad], local_n, comm)\n"
    "        return\n"
    "    flat = torch.cat(",
    fails="one_all_reduce train_step.one_message_per_bucket",
    says="all-reduces for",
)
slip(
    "a message per tensor on five ranks and more",
    "    flat = torch.cat(",
    "    if len(grads) > 1 and comm.size > 4:\n"
    "        for grad in grads:\n"
    "            average_gradients([grad], local_n, comm)\n"
    "        return\n"
    "    flat = torch.cat(",
    fails="one_all_reduce",
    says="put all into one flat tensor first",
)
