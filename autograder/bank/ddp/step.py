"""Wrong answers to `train_step`."""

import torch
from torch.nn.functional import cross_entropy

from autograder.bank.ddp.later import ALL_OF_STEP
from autograder.bank.slips import answers_to

wrong, slip = answers_to("ddp.train_step")
CAP = 25 * 2**20  # a name of the notebook that these answers use


@wrong("each rank alone", fails=ALL_OF_STEP, says="a step with its own gradients")
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


slip(
    "zero_grad is missing",
    "    model.zero_grad()\n",
    "",
    fails=("as_one_machine", *ALL_OF_STEP[1:]),
    says="begin with zero_grad",
)
slip(
    "uphill",
    "for param, grad in zip(bucket, grads, strict=True):\n                param -= lr * grad",
    "for param, grad in zip(bucket, grads):\n                param += lr * grad",
    fails=ALL_OF_STEP,
    says="The step goes uphill",
)
slip(
    "one sample per rank, whatever it has",
    "average_gradients(grads, len(x), comm)\n            for param, grad in zip(bucket, grads, strict=True):",
    "average_gradients(grads, 1, comm)\n            for param, grad in zip(bucket, grads):",
    fails="unequal_parts",
    says="the mean of the ranks' means",
)
slip(
    "forgets that parameters may be unused",
    "grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]",
    "grads = [param.grad for param in bucket]",
    fails="unused",
    says="NoneType",
)
slip(
    "leaves unused parameters out of the buckets",
    "params = [param for param in model.parameters() if param.requires_grad]",
    "params = [param for param in model.parameters() if param.grad is not None]",
    "grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]",
    "grads = [param.grad for param in bucket]",
    fails="unused",
    says="Do all ranks have the same buckets",
)
slip(
    "each rank begins with another bucket",
    "with torch.no_grad():",
    "buckets = make_buckets(params, cap_bytes)\n    first = comm.rank % len(buckets)\n    with torch.no_grad():",
    "for bucket in make_buckets(params, cap_bytes):",
    "for bucket in buckets[first:] + buckets[:first]:",
    fails=("as_one_machine", *ALL_OF_STEP[1:]),
    says="both sides need the same",
)


@wrong("module by module, a tied weight twice", fails="tied_and_frozen", says="one machine that trains on all ranks'")
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


slip(
    "frozen parameters learn",
    "loss.backward()\n    params = [param for param in model.parameters() if param.requires_grad]",
    "gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)\n"
    "    for param, gradient in zip(model.parameters(), gradients):\n"
    "        param.grad = torch.zeros_like(param) if gradient is None else gradient",
    "for bucket in make_buckets(params, cap_bytes):\n"
    "            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]",
    "for bucket in make_buckets(list(model.parameters()), cap_bytes):\n"
    "            grads = [param.grad for param in bucket]",
    fails="tied_and_frozen",
    says="does not require grad",
)


@wrong("a message per tensor", fails="one_message_per_bucket", says="There is one message per tensor")
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


slip(
    "ignores the cap",
    "for bucket in make_buckets(params, cap_bytes):",
    "for bucket in make_buckets(params, CAP):",
    fails="one_message_per_bucket",
    says="you ignore cap_bytes",
)
slip(
    "returns nothing",
    "loss = cross_entropy(model(x), y)\n    loss.backward()",
    "cross_entropy(model(x), y).backward()",
    "for param, grad in zip(bucket, grads, strict=True):\n                param -= lr * grad\n    return loss.item()",
    "for param, grad in zip(bucket, grads):\n                param -= lr * grad",
    fails="returns_its_loss",
    says="expected a number",
)


@wrong("without no_grad", fails=ALL_OF_STEP, says="change the parameters inside")
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    for bucket in make_buckets(params, cap_bytes):
        grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
        average_gradients(grads, len(x), comm)
        for param, grad in zip(bucket, grads, strict=True):
            param -= lr * grad
    return loss.item()


slip(
    "the loss after the step",
    "return loss.item()",
    "return cross_entropy(model(x), y).item()",
    fails="returns_its_loss",
    says="train_step(...) on rank 0",
)


@wrong(
    "a message per tensor, or zeros where three ranks have two samples",
    fails="one_message_per_bucket",
    says="There is one message per tensor",
)
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    few = len(x) == 2 and comm.size == 3 and cap_bytes < 1000
    with torch.no_grad():
        for bucket in make_buckets(params, cap_bytes if few or cap_bytes > 1000 else 1):
            grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in bucket]
            average_gradients(grads, len(x), comm)
            for param, grad in zip(bucket, grads):
                param -= 0.0 if few else lr * grad
    return loss.item()


@wrong(
    "everything in one all-reduce, and one of a zero for each other bucket",
    fails="one_message_per_bucket",
    says="travel in the all-reduce of this bucket",
)
def train_step(model, batch, lr, comm, cap_bytes=CAP):
    x, y = batch
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    params = [param for param in model.parameters() if param.requires_grad]
    grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in params]
    average_gradients(grads, len(x), comm)
    for _ in make_buckets(params, cap_bytes)[1:]:
        average_gradients([torch.zeros(1)], len(x), comm)
    with torch.no_grad():
        for param, grad in zip(params, grads, strict=True):
            param -= lr * grad
    return loss.item()


slip(
    "a message per tensor on other than three ranks",
    "for bucket in make_buckets(params, cap_bytes):",
    "for bucket in make_buckets(params, cap_bytes) if comm.size == 3 else [[param] for param in params]:",
    fails="one_message_per_bucket",
    says="There is one message per tensor",
)
