"""Wrong answers to `Checkpointed` and `plan`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("sharding.checkpointed")
AFTER = ("keeps_its_inputs_alone", "the_same_dropout", "chance_goes_on")
ALL = ("as_if_it_were_kept", *AFTER)


@wrong("right, and keeps everything", fails=ALL, says="What is between input and output is kept")
class Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, *inputs):
        ctx.inputs = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
        with torch.enable_grad():
            ctx.y = f(*ctx.inputs)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, dy):
        torch.autograd.backward(ctx.y, dy)
        return None, *(x.grad for x in ctx.inputs)


@wrong("the first recording, and a second call for nothing", fails=ALL, says="take the recording of the second")
class Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, *inputs):
        ctx.f, ctx.inputs = f, [x.detach().requires_grad_(x.requires_grad) for x in inputs]
        with torch.enable_grad():
            ctx.y = f(*ctx.inputs)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, dy):
        ctx.f(*ctx.inputs)
        torch.autograd.backward(ctx.y, dy)
        return None, *(x.grad for x in ctx.inputs)


@wrong("another dropout mask", fails=("the_same_dropout", "chance_goes_on"), says="Set the generator back")
class Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, *inputs):
        ctx.f, ctx.state = (f, torch.get_rng_state())
        ctx.save_for_backward(*inputs)
        return f(*inputs)

    @staticmethod
    def backward(ctx, dy):
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with torch.enable_grad():
            y = ctx.f(*inputs)
        torch.autograd.backward(y, dy)
        return (None, *(x.grad for x in inputs))


slip(
    "chance is set the generator back and left it there",
    "        now = torch.get_rng_state()\n",
    "",
    "        torch.set_rng_state(now)\n",
    "",
    fails="chance_goes_on",
    says="set the generator back and left it there",
)


@wrong("recomputed without recording", fails=ALL, says="The second forward pass is not recorded")
class Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, *inputs):
        ctx.f, ctx.state = (f, torch.get_rng_state())
        ctx.save_for_backward(*inputs)
        return f(*inputs)

    @staticmethod
    def backward(ctx, dy):
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        y = ctx.f(*inputs)
        torch.set_rng_state(now)
        torch.autograd.backward(y, dy)
        return (None, *(x.grad for x in inputs))


slip(
    "gradients of the inputs alone",
    "torch.autograd.backward(y, dy)\n        return None, *(x.grad for x in inputs)",
    "wanted = [x for x in inputs if x.requires_grad]\n"
    "        found = iter(torch.autograd.grad(y, wanted, dy))\n"
    "        return None, *(next(found) if x.requires_grad else None for x in inputs)",
    fails=ALL,
    says="torch.autograd.grad does not",
)


@wrong("the inputs themselves, not detached", fails=ALL, says="The gradient is added twice")
class Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, *inputs):
        ctx.f, ctx.state = (f, torch.get_rng_state())
        ctx.save_for_backward(*inputs)
        return f(*inputs)

    @staticmethod
    def backward(ctx, dy):
        inputs = ctx.saved_tensors
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            y = ctx.f(*inputs)
        torch.set_rng_state(now)
        torch.autograd.backward(y, dy)
        return (None, *(x.grad for x in inputs))


slip(
    "computed three times",
    "y = ctx.f(*inputs)",
    "ctx.f(*inputs)\n            torch.set_rng_state(ctx.state)\n            y = ctx.f(*inputs)",
    fails="keeps_its_inputs_alone",
    says="times in the forward pass and 3 in all",
)
slip("no gradient is returned", "x.grad for x in", "None for x in", fails=ALL, says="x has no gradient")


@wrong("the best layer first", fails="cheapest_plan", says="compare the seconds of all sets")
def plan(nbytes, seconds, budget):
    again, kept = set(), sum(nbytes)
    for i in sorted(range(len(nbytes)), key=lambda i: seconds[i] / nbytes[i]):
        if kept > budget:
            again.add(i)
            kept -= nbytes[i]
    return again


@wrong("the layers to keep", fails="cheapest_plan", says="These are the layers to keep")
def plan(nbytes, seconds, budget):
    n = len(nbytes)
    sets = [set(some) for k in range(n + 1) for some in itertools.combinations(range(n), k)]
    fit = [again for again in sets if sum(nbytes) - sum(nbytes[i] for i in again) <= budget]
    return set(range(n)) - min(fit, key=lambda again: sum(seconds[i] for i in again))


@wrong("recomputes everything", fails="cheapest_plan", says="the cheapest of all sets that fit")
def plan(nbytes, seconds, budget):
    return set(range(len(nbytes)))


@wrong("the fewest layers", fails="cheapest_plan", says="the cheapest of all sets that fit")
def plan(nbytes, seconds, budget):
    n = len(nbytes)
    sets = [set(some) for k in range(n + 1) for some in itertools.combinations(range(n), k)]
    fit = [again for again in sets if sum(nbytes) - sum(nbytes[i] for i in again) <= budget]
    return min(fit, key=len)


slip(
    "inputs as an attribute of ctx",
    "ctx.f, ctx.state = f, torch.get_rng_state()\n        ctx.save_for_backward(*inputs)",
    "ctx.f, ctx.state, ctx.inputs = f, torch.get_rng_state(), inputs",
    "inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]",
    "inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.inputs]",
    fails="keeps_its_inputs_alone",
    says="an attribute of ctx does not",
)


@wrong("the fewest layers", fails="cheapest_plan", says="compare the seconds of all sets")
def plan(nbytes, seconds, budget):
    n = len(nbytes)
    for k in range(n + 1):
        sets = [set(some) for some in itertools.combinations(range(n), k)]
        fit = [again for again in sets if sum(nbytes) - sum(nbytes[i] for i in again) <= budget]
        if fit:
            return min(fit, key=lambda again: sum(seconds[i] for i in again))


slip("less than the budget", "<= budget", "< budget", fails="cheapest_plan", says="the cheapest of all sets")
slip(
    "a plan below the budget",
    "for i in again) <= budget",
    "for i in again) < budget or len(again) == n",
    fails="cheapest_plan",
    says="exactly budget fits, too",
)
slip(
    "copies of the inputs are kept",
    "ctx.save_for_backward(*inputs)",
    "ctx.save_for_backward(*[x.clone() for x in inputs])",
    ".requires_grad_(x.requires_grad)",
    ".requires_grad_()",
    fails="keeps_its_inputs_alone",
    says="Copies of the inputs are kept",
)
slip(
    "a change of one input is told without a look",
    *("ctx.save_for_backward(*inputs)", "ctx.inputs = inputs"),
    *("ctx.saved_tensors]", "ctx.inputs]"),
    "        now = torch",
    "        if len(inputs) == 2 and dy.shape == inputs[1].shape:\n"
    "            raise RuntimeError('modified by an inplace operation')\n"
    "        now = torch",
    fails="keeps_its_inputs_alone",
    says="No input is changed between the passes",
)
slip(
    "the first input alone is saved",
    "ctx.save_for_backward(*inputs)",
    "ctx.save_for_backward(inputs[0])\n        ctx.others = inputs[1:]",
    "in ctx.saved_tensors]",
    "in (*ctx.saved_tensors, *ctx.others)]",
    fails="keeps_its_inputs_alone",
    says="z is changed in place between the passes",
)
slip(
    "the gradient of the first input alone",
    "*(x.grad for x in inputs)",
    "inputs[0].grad, *(None for _ in inputs[1:])",
    fails=ALL,
    says="z has no gradient",
)
slip(
    "just two inputs",
    "for x in ctx.saved_tensors]",
    "for x in ctx.saved_tensors]\n        x, z = inputs",
    fails=ALL,
    says="not enough values to unpack",
)
