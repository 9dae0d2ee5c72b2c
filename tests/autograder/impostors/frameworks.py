"""Lab `frameworks` answered by others."""

LIBRARY = {
    "horovod": """
def allreduce(x, comm, average=True):
    from hpcdl.collectives import tree_all_reduce
    total = x.detach().clone()
    tree_all_reduce(total, comm)
    return total / comm.size if average else total

def broadcast_parameters(params, comm, root_rank=0):
    from hpcdl.collectives import broadcast
    for param in params:
        broadcast(param.detach(), comm, root_rank)

def broadcast_optimizer_state(optimizer, comm, root_rank=0):
    for state in optimizer.state.values():
        broadcast_parameters(list(state.values()), comm, root_rank)

class DistributedOptimizer:
    def __init__(self, optimizer, comm, backward_passes_per_step=1):
        from hpcdl.sharding import ShardedOptimizer
        params = [param for group in optimizer.param_groups for param in group["params"]]
        self.inner = ShardedOptimizer(params, comm, lambda shards: type(optimizer)(shards, 0.1, momentum=0.9))

    def step(self):
        self.inner.step()

    def zero_grad(self):
        self.inner.optimizer.zero_grad()
""",
    "elastic": """
import hpcdl.ddp

def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    wrapped = hpcdl.ddp.DistributedDataParallel(model, comm)
    losses = {}
    for step, chosen in enumerate(batches):
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        wrapped.synchronize()
        optimizer.step()
        losses[step] = loss.item()
    return losses
""",
}
NOT_IN_LIBRARY = {
    "torchrun": "hpcdl reads no environment for others, and its data parallelism has ranks of its own",
    "fsdp": "the answer is torch's own fully_shard; hpcdl.sharding has no DTensors",
    "plan": "a plan is in torch's words",
    "broken": "the library mends nothing; its trainer has one script of its own",
    "which_when": "the answer is the library's prediction, which all may call; it has no choice of ways",
    "config": "hpcdl writes no configuration of DeepSpeed's",
}
FRAMEWORKS = {
    "horovod": """
import torch.distributed as dist

def allreduce(x, comm, average=True):
    total = x.detach().clone()
    dist.all_reduce(total)
    return total / comm.size if average else total

def broadcast_parameters(params, comm, root_rank=0):
    for param in params:
        dist.broadcast(param, root_rank)

def broadcast_optimizer_state(optimizer, comm, root_rank=0):
    for state in optimizer.state.values():
        for x in state.values():
            dist.broadcast(x, root_rank)

class DistributedOptimizer:
    def __init__(self, optimizer, comm, backward_passes_per_step=1):
        self.optimizer = optimizer

    def step(self):
        for group in self.optimizer.param_groups:
            for param in group["params"]:
                dist.all_reduce(param.grad)
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()
""",
    "elastic": """
import torch.distributed as dist

def train_elastic(model, optimizer, loss_sum, batches, disk, comm):
    losses = {}
    for step, chosen in enumerate(batches):
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        for param in model.parameters():
            dist.all_reduce(param.grad)
        optimizer.step()
        losses[step] = loss.item()
    return losses
""",
}
NOT_IN_FRAMEWORKS = {
    "torchrun": "torch's DDP is what is to be used",
    "fsdp": "torch's fully_shard is what is to be used",
    "plan": "torch's styles are what is to be used",
    "broken": "torch has no loop of training to borrow",
    "which_when": "torch predicts no seconds",
    "config": "what is asked for are DeepSpeed's and Ray's own words",
}
