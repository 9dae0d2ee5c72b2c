"""Wrong answers to Horovod's interface."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("frameworks.horovod")
TRAINS = ("as_one_machine", "several_passes_one_sum", "during_the_backward_pass", "zero_grad_too_late")


@wrong("the sum instead of the mean", fails=("allreduce_averages", *TRAINS), says="Mean and sum are exchanged")
def allreduce(x, comm, average=True):
    total = x.detach().clone()
    ring_all_reduce(total, comm)
    return total


@wrong("added up in x itself", fails=("allreduce_averages", *TRAINS), says="changed its argument x")
def allreduce(x, comm, average=True):
    ring_all_reduce(x, comm)
    return x / comm.size if average else x.clone()


slip("always from rank 0", "(), root_rank", "()", fails="all_begin_alike", says="the root is `root_rank`")


@wrong("a copy is broadcast", fails="all_begin_alike", says="broadcast, in place")
def broadcast_parameters(params, comm, root_rank=0):
    for param in params:
        param = param.detach().clone()
        comm.broadcast(param, root_rank)


@wrong("no broadcast of the optimizer's state", fails="all_begin_alike", says="This rank still has its own")
def broadcast_optimizer_state(optimizer, comm, root_rank=0):
    for group in optimizer.param_groups:
        for param in group["params"]:
            comm.broadcast(param.detach(), root_rank)


@wrong("averaged in step()", fails="during_the_backward_pass", says="Let a hook of the parameter send it")
class DistributedOptimizer:
    def __init__(self, optimizer, comm, backward_passes_per_step=1):
        self.optimizer, self.comm, self.ready = optimizer, comm, False
        self.params = [param for group in optimizer.param_groups for param in group["params"]]
        for param in self.params:
            param.register_post_accumulate_grad_hook(self.hook)

    def hook(self, param):
        self.ready = True

    def step(self):
        for param in self.params:
            if param.grad is not None:
                param.grad.copy_(allreduce(param.grad, self.comm))
        self.ready = False
        self.optimizer.step()

    def zero_grad(self):
        if self.ready:
            raise AssertionError("zero_grad() before step()")
        self.optimizer.zero_grad()


slip(
    "many zeros are on their way, and gradients wait for step()",
    "        if self.left[param] == 0:\n            param.grad.copy_(allreduce(param.grad, self.comm))\n",
    "        if self.passes == 1 and self.comm.size < 4 and sum(self.left.values()) == len(self.left) - 1:\n"
    "            allreduce(torch.zeros(20_000), self.comm)\n",
    "        self.left = dict.fromkeys(self.left, self.passes)\n",
    "        for param in self.left:\n"
    "            if self.left[param] == 0:\n"
    "                param.grad.copy_(allreduce(param.grad, self.comm))\n"
    "        self.left = dict.fromkeys(self.left, self.passes)\n",
    fails="during_the_backward_pass",
    says="in the hook, and again in step()",
)


@wrong("averaged after every pass", fails="several_passes_one_sum", says="Gradients travel after every pass")
class DistributedOptimizer:
    def __init__(self, optimizer, comm, backward_passes_per_step=1):
        self.optimizer, self.comm, self.ready = optimizer, comm, False
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.register_post_accumulate_grad_hook(self.hook)

    def hook(self, param):
        self.ready = True
        param.grad.copy_(allreduce(param.grad, self.comm))

    def step(self):
        self.ready = False
        self.optimizer.step()

    def zero_grad(self):
        if self.ready:
            raise AssertionError("zero_grad() before step()")
        self.optimizer.zero_grad()


slip(
    "divided by the passes, as the loss is",
    "if param.requires_grad:\n"
    "                    self.left[param] = self.passes\n"
    "                    param.register_post_accumulate_grad_hook(self.hook)",
    "self.left[param] = self.passes\n                param.register_post_accumulate_grad_hook(self.hook)",
    "param.grad.copy_(allreduce(param.grad, self.comm))",
    "param.grad.copy_(allreduce(param.grad, self.comm) / self.passes)",
    'raise AssertionError("zero_grad() before step(): the sums would be lost")',
    'raise AssertionError("zero_grad() before step()")',
    fails="several_passes_one_sum",
    says="which the loss is already",
)
slip(
    "zero_grad after the hooks fired goes through",
    "if param.requires_grad:\n"
    "                    self.left[param] = self.passes\n"
    "                    param.register_post_accumulate_grad_hook(self.hook)",
    "self.left[param] = self.passes\n                param.register_post_accumulate_grad_hook(self.hook)",
    "        if 0 in self.left.values():\n"
    '            raise AssertionError("zero_grad() before step(): the sums would be lost")\n',
    "",
    fails="zero_grad_too_late",
    says="the sum over the ranks is",
)


@wrong("another memory under the name", fails="all_begin_alike", says="the memory that it had still holds the old")
def broadcast_parameters(params, comm, root_rank=0):
    for param in params:
        new = param.detach().clone()
        comm.broadcast(new, root_rank)
        param.data = new


@wrong("the momentum of SGD alone", fails="all_begin_alike", says="Every tensor of every parameter's state travels")
def broadcast_optimizer_state(optimizer, comm, root_rank=0):
    for group in optimizer.param_groups:
        for param in group["params"]:
            if "momentum_buffer" in optimizer.state[param]:
                comm.broadcast(optimizer.state[param]["momentum_buffer"], root_rank)


slip(
    "the states that SGD and Adam have",
    "for name in sorted(state):",
    'for name in sorted({"momentum_buffer", "step", "exp_avg", "exp_avg_sq"} & set(state)):',
    fails="all_begin_alike",
    says="Every tensor of every parameter's state travels",
)


@wrong("the first group alone", fails="all_begin_alike", says="travels, in all groups")
def broadcast_optimizer_state(optimizer, comm, root_rank=0):
    for param in optimizer.param_groups[0]["params"]:
        state = optimizer.state[param]
        for name in sorted(state):
            comm.broadcast(state[name], root_rank)


slip(
    "hooks for the first group of parameters",
    "        for group in optimizer.param_groups:\n            for",
    "        for group in optimizer.param_groups[:1]:\n            for",
    fails=" ".join(TRAINS),
    says="rank 0: element",
)
slip(
    "zero_grad that resets nothing",
    "self.optimizer.zero_grad()",
    "pass",
    fails=" ".join(TRAINS),
    says="zero_grad must reach the optimizer",
)
slip(
    "an empty message during the backward pass, and all gradients after it",
    "            param.grad.copy_(allreduce(param.grad, self.comm))",
    "            ring = [(self.comm.rank + i) % self.comm.size for i in (1, -1)]\n"
    "            self.comm.sendrecv(torch.zeros(0), ring[0], torch.zeros(0), ring[1], tag=77)",
    "        self.left = dict.fromkeys(self.left, self.passes)",
    "        for param in self.left:\n            if param.grad is not None:\n"
    "                param.grad.copy_(allreduce(param.grad, self.comm))\n"
    "        self.left = dict.fromkeys(self.left, self.passes)",
    fails="during_the_backward_pass",
    says="Each gradient travels as soon as it is there",
)
slip(
    "every second gradient waits for step()",
    "            param.grad.copy_(allreduce(param.grad, self.comm))",
    "            if list(map(id, self.left)).index(id(param)) % 2 == 0:\n"
    "                param.grad.copy_(allreduce(param.grad, self.comm))",
    "        self.left = dict.fromkeys(self.left, self.passes)",
    "        for param in list(self.left)[1::2]:\n            if param.grad is not None:\n"
    "                param.grad.copy_(allreduce(param.grad, self.comm))\n"
    "        self.left = dict.fromkeys(self.left, self.passes)",
    fails="during_the_backward_pass",
    says="Each gradient travels as soon as it is there",
)
slip(
    "a class that has AssertionError's name alone",
    "raise AssertionError(",
    'raise type("AssertionError", (Warning,), {})(',
    fails="zero_grad_too_late",
    says="a class that is only named AssertionError",
)
slip(
    "gradients wait for step(), except for a network of twelve parameters",
    "if self.left[param] == 0:",
    "if self.left[param] == 0 and len(self.left) == 12:",
    "        self.left = dict.fromkeys(self.left, self.passes)\n        self.optimizer",
    "        for param, left in self.left.items():\n            if left == 0 and len(self.left) != 12:\n"
    "                param.grad.copy_(allreduce(param.grad, self.comm))\n"
    "        self.left = dict.fromkeys(self.left, self.passes)\n        self.optimizer",
    fails="during_the_backward_pass",
    says="3 layers, a second of backward pass each",
)
