"""Wrong answers to `train_step`."""

import torch
from torch.nn.functional import cross_entropy

from autograder.authoring import wrong
from autograder.bank.ddp.later import ALL_OF_STEP
from autograder.bank.slips import slip

STEP = "ddp.train_step"
CAP = 25 * 2**20  # a name of the notebook that these answers use


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


@wrong(STEP, "zero_grad is missing", fails=("as_one_machine", *ALL_OF_STEP[1:]), says="begin with zero_grad")
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


@wrong(STEP, "leaves unused parameters out of the buckets", fails="unused", says="Do all ranks have the same buckets")
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
    STEP, "module by module, a tied weight twice", fails="tied_and_frozen", says="one machine that trains on all ranks'"
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


@wrong(STEP, "ignores the cap", fails="one_message_per_bucket", says="you ignore cap_bytes")
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


@wrong(STEP, "without no_grad", fails=ALL_OF_STEP, says="change the parameters inside")
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
    STEP,
    "the loss after the step",
    "return loss.item()",
    "return cross_entropy(model(x), y).item()",
    fails="returns_its_loss",
    says="train_step(...) on rank 0",
)


@wrong(
    STEP,
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
