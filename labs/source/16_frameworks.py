# %% [markdown]
# # Lab {{number frameworks}} · Six tools, one step
# ## torchrun and DDP, FSDP2, DTensor, Horovod, DeepSpeed, Ray: the same training, six ways
#
# Until here you have written what the tools do. Now you use them, and because you know what is inside, one question is enough for each: *who sends how many bytes
# when, and which line of mine says so?*
#
# One training for all of them: the same model, the same seed, the same order of samples. And one check for all: in float64 the losses are those of a single process,
# to $10^{-12}$. A tool may change where numbers are and when they travel. It may not change the training; where it does, and it is easy to make it, that is a mistake of
# the one who called it.
#
# **You will be able to**
# - train with `torchrun` and DDP on any number of processes, with a last batch that does not divide, on more than one machine;
# - cut a transformer with FSDP2 and with a DTensor plan, and count what either sends;
# - say what Horovod's three calls do, because you have written them;
# - go on after a process died, with one fewer, and lose no sample;
# - write DeepSpeed's configuration and Ray's loop so that the numbers in them agree with one another.
#
# **100 points, 6 exercises, about two hours.** You need lab 07; labs {{number model_parallel}} and {{number sharding}} help. No GPU, and neither DeepSpeed nor Ray: what they need is said where they come.
#
# | here | means |
# |---|---|
# | $p$, `rank` | processes of the training ("world size"), one of them |
# | local rank | the number of a process *on its machine*: which GPU is its own |
# | $\Psi$ | bytes of all weights; gradients have as many |

# %%
import inspect
import json
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from IPython.display import display
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from autograder import check
from hpcdl.cluster import Cluster
from hpcdl.cluster.script import sbatch
from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import simulate
from hpcdl.nn.decoder import Decoder
from hpcdl.training import optional, run_on
from hpcdl.training import six_tools as trainings
from hpcdl.widgets import guess, guessed, reveal, style, when_solved
from hpcdl.widgets.pictures import six_tools

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# Rows are the stages of a step, columns the tools. In each field stands what every rank sends, for the blocks of a decoder in float32; the line below is what you write
# for it.
#
# Which of them sends the least, for 85 million weights and 1,024 tokens on each of two ranks? Say it first, then:
# 1. Choose each **tool** in turn. Which of them are the same, and why?
# 2. Move the **tokens**. What grows, and what does not care?
# 3. Move the **ranks** to 64. Which of these numbers grow with them, and how far?

# %%
guess(
    "frameworks.least",
    "85 million weights, 1,024 tokens on each of two ranks: who sends the least in a step?",
    choices=("DDP", "FSDP2", "DTensor", "Horovod", "DeepSpeed", "Ray Train"),
)

# %%
guess(
    "frameworks.tokens",
    "From how many tokens on a rank on does DTensor send more than DDP?",
    unit="tokens",
)

# %%
with when_solved():
    guessed("frameworks.least")
    guessed("frameworks.tokens")
    sent = {
        (tool, tokens): sum(six_tools.sent(tool, stage, 2, 768, 12, tokens) for stage in six_tools.STAGES)
        for tool in six_tools.TOOLS
        for tokens in (1024, 2048)
    }
    reveal("frameworks.least", min(six_tools.TOOLS, key=lambda tool: sent[tool, 1024]))
    of_a_token = (sent["DTensor", 2048] - sent["DTensor", 1024]) / 1024
    reveal("frameworks.tokens", sent["DDP", 1024] / of_a_token)
    display(six_tools.explorable())

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# 1. DDP, Horovod and Ray send the same: the gradients' sum, in a ring. Ray's worker *is* DDP. DeepSpeed's first stage sends as much in two halves, the second one after the
#    update. FSDP2 gathers the weights twice and sends half as much again, and keeps a p-th.
# 2. DTensor sends activations and not weights: the only one that cares for tokens, and the only one in whose forward pass one waits for the others' *results*. Backward it
#    sends twice as much as forward: q, k and v each have a sum of their own for what went into them. Who makes one layer of the three has one sum.
# 3. All of them go with $(p-1)/p$: from 2 to 64 ranks less than double. Per rank, rings cost what they cost; what grows is the number of messages.
# </details>

# %% [markdown]
# ## torchrun and DDP
#
# `torchrun --nproc-per-node=4 train.py` starts a file four times, and tells each process by its environment who it is. On two machines with four GPUs each, started with
# `--nnodes=2`, the sixth process finds
#
# | | | is for |
# |---|---|---|
# | `RANK` | 5 | which share of the data is mine |
# | `WORLD_SIZE` | 8 | how many share it |
# | `LOCAL_RANK` | 1 | which GPU of *this machine* is mine |
# | `MASTER_ADDR`, `MASTER_PORT` | `node0`, 29500 | where rank 0 waits for all: over which network interface they find each other (`GLOO_SOCKET_IFNAME`, `NCCL_SOCKET_IFNAME` choose it) |
#
# `dist.init_process_group(backend)` reads them and makes a process group. Which backend depends on where the tensors are:
#
# | | gloo | MPI | NCCL |
# |---|---|---|---|
# | broadcast, all-reduce, reduce, all-gather, all-to-all | CPU, GPU | CPU (GPU if MPI was built for it) | GPU |
# | send and receive | CPU | CPU (GPU if MPI was built for it) | GPU |
# | reduce-scatter | CPU, GPU | no | GPU |
# | comes with torch | yes | no: torch is to be built with it | yes, for CUDA |
#
# `DataParallel` was before this: one process, a thread for each GPU, the model copied anew in every step, through one Python. `DistributedDataParallel` has a process
# for each GPU, and lab 07's hooks and buckets. `torch.distributed.rpc`, calls of functions in other processes, is for what is no collective at all, as lab {{number consistency}}'s server; it is
# no longer developed (pytorch #149393).
#
# The whole file, but for what you write:
#
#     rank, world, device = place(os.environ)
#     model.to(device)
#     dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
#     losses = train(os.environ, model, x, y, epochs, batch, lr)
#     dist.destroy_process_group()
#
# **How this is graded.** There is no network within the walls in which your answer runs. So it is torch's own DDP, FSDP2 and DTensor that run there, on a process group
# whose messages are carried by the simulated machine of lab 08 (`hpcdl.training.process_group`): each one is counted.


# %%
def order(n: int, epoch: int) -> Tensor:
    """The numbers of n samples as they come in an epoch, the same on all ranks."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))


# %% [markdown]
# {{exercise torchrun}}
#
# All ranks go through the same batches, `order(len(x), epoch).split(batch)`, and rank r takes of each one every p-th sample, beginning with its r-th. The last batch of an
# epoch is shorter, and p need not divide any.
#
# torch's `DistributedSampler` does something else with such a tail: it repeats samples until it is even, and so trains on some of them twice. (It shuffles by
# `sampler.set_epoch(epoch)`; who forgets it has the same order in every epoch.) `with model.join():` lets ranks have different numbers of *batches*: those that are done
# answer the others' all-reduces with zeros. Where the loss is right, neither is needed.
#
# <details><summary>Hint 1: what DDP does with gradients</summary>
#
# It takes the mean over the ranks: 1/p of their sum. The gradient of the whole batch is the sum of all samples' gradients over their number. So: what must the loss of
# one rank be, in terms of the sum of its samples' losses, of `len(chosen)` and of p?
# </details>
# <details><summary>Hint 2: the loss to return</summary>
#
# `cross_entropy(..., reduction="sum") / len(chosen)` is this rank's part of it; `dist.all_reduce(part)` adds up the ranks' in place. Detach it first.
# </details>
# <details><summary>Hint 3: no samples</summary>
#
# `x[mine]` with an empty `mine` has no rows, the sum of its losses is 0, and its gradients are zeros: DDP waits for them, so do not leave out the backward pass.
# </details>


# %%
def place(env) -> tuple[int, int, str]:
    """Rank, number of processes, device, from torchrun's variables; the machines have GPUs.

    >>> place({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"})
    (5, 8, 'cuda:1')
    """
    # BEGIN SOLUTION
    return int(env["RANK"]), int(env["WORLD_SIZE"]), f"cuda:{env['LOCAL_RANK']}"
    # END SOLUTION


def train(
    env,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: int,
    batch: int,
    lr: float,
) -> list[float]:
    """Train by SGD with momentum 0.9, on all processes together; each batch's mean loss.

    There is a process group already. Rank 0's model is the one that counts. Gradients and
    losses travel once in each step.
    """
    # BEGIN SOLUTION
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
            dist.all_reduce(total)
            losses.append(total.item())
    return losses
    # END SOLUTION


# %%
check("frameworks.torchrun")

# %% [markdown]
# ## FSDP2: a p-th of everything
#
# Lab {{number sharding}}'s ZeRO-3 is `fully_shard` in torch. It changes a module in place: its parameters become **DTensors**, of which each rank holds rows, `Shard(0)`, and hooks gather
# them before the module's forward and backward pass and free them after. A `DeviceMesh` says which ranks share: `init_device_mesh("cpu", (p,))`.
#
# One call makes one **group**, which is gathered at once: all parameters in the module *that no call has taken yet*. So the order of the calls decides how much memory
# it takes. The model is a small decoder, `hpcdl.nn.decoder`: an embedding, `model.blocks`, a norm and the output, which may use the embedding's matrix once more.

# %% [markdown]
# {{exercise fsdp}}
#
# For the state, `torch.distributed.checkpoint.state_dict` has `get_model_state_dict(model, options=...)` and `set_model_state_dict(model, state, options=...)`, whose
# `StateDictOptions(full_state_dict=True)` asks for plain whole tensors. Every rank must call them: they communicate.
#
# <details><summary>Hint: the order</summary>
#
# Each of `model.blocks` first; then the model itself, which takes the rest. Matrices that are used twice are in the rest together. Return the model.
# </details>

# %%
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard


# %%
def shard(model: Decoder, mesh) -> nn.Module:
    """The model, cut among the ranks of the mesh. A block is gathered at a time, forward
    and backward, and freed after each."""
    # BEGIN SOLUTION
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)
    # END SOLUTION


def whole(model: nn.Module) -> dict[str, Tensor]:
    """The state of a sharded model as plain, whole tensors, by name."""
    # BEGIN SOLUTION
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    # END SOLUTION


def restore(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Fill a sharded model, on any number of ranks, from a whole state."""
    # BEGIN SOLUTION
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
    # END SOLUTION


# %%
check("frameworks.fsdp")

# %% [markdown]
# ## DTensor: a plan
#
# Lab {{number model_parallel}} cut the matrices of a layer by hand: the first by columns, so that each rank has some of the numbers in between, the second by rows, and one sum at the end. With
# DTensors this is a **plan**, a dict from names of modules to how they are cut:
#
#     parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
#
# | style | its weights | takes | gives |
# |---|---|---|---|
# | `ColwiseParallel()` | rows of torch's `weight`, which are the columns of the formula's | the whole input | this rank's part of the output |
# | `RowwiseParallel()` | columns of torch's `weight` | this rank's part of the input | the whole output: a sum over the ranks |
#
# A plan that is wrong still gives the right numbers as a rule. torch sees that something is not where it is needed, and *sends it there*: DTensor's great comfort, and
# how a training becomes slow in silence. So one counts. `CommDebugMode` does it for one process:
#
#     with CommDebugMode() as comm_mode:
#         model(tokens)
#     comm_mode.get_comm_counts()          # {c10d_functional.all_reduce: 4}
#
# Here the process group itself writes down what it was asked for, and the check reads that.

# %% [markdown]
# {{exercise plan}}
#
# The decoder's blocks have `attention.q`, `attention.k`, `attention.v`, `attention.out`, `mlp.up` and `mlp.down`. Embedding, norms and output stay whole. Attention finds out
# from what `q` gives how many heads it has.
#
# <details><summary>Hint</summary>
#
# Six entries for each block; `for i in range(len(model.blocks))`, and names like `f"blocks.{i}.attention.q"`.
# </details>

# %%
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel


# %%
def plan(model: Decoder) -> dict:
    """How to cut the decoder for tensor parallelism: by name of the module, its style.

    >>> sorted(plan(Decoder(12, 8, heads=2, blocks=1)))[:2]
    ['blocks.0.attention.k', 'blocks.0.attention.out']
    """
    # BEGIN SOLUTION
    styles = {}
    for i in range(len(model.blocks)):
        for name in ("attention.q", "attention.k", "attention.v", "mlp.up"):
            styles[f"blocks.{i}.{name}"] = ColwiseParallel()
        for name in ("attention.out", "mlp.down"):
            styles[f"blocks.{i}.{name}"] = RowwiseParallel()
    return styles
    # END SOLUTION


# %%
check("frameworks.plan")

# %% [markdown]
# ## Horovod's three calls
#
# Horovod (Sergeev and Del Balso 2018) took the ring that Baidu had brought from MPI to deep learning, and made of it what all tools have had since: *a training script
# for one GPU, and a few lines more*. They are
#
#     hvd.init()                                               # mpiexec has started the processes
#     optimizer = hvd.DistributedOptimizer(optimizer)          # gradients are averaged before each step
#     hvd.broadcast_parameters(model.state_dict(), root_rank=0)
#     hvd.broadcast_optimizer_state(optimizer, root_rank=0)
#
# The last release, 0.28.1, is of June 2023 and does not compile beside a torch of today, which needs C++17 (issues #3996 and #4014 of horovod/horovod; the fix, #3998,
# was merged and never released). Its interface lives on, and it has forty lines in it. Write them, on our communicator.

# %% [markdown]
# {{exercise horovod}}
#
# What Horovod promises, and you keep:
# - `allreduce(x, comm, average=True)` returns a new tensor, the mean over the ranks or their sum, and leaves `x` alone.
# - The two broadcasts work in place. Without the second one a training that goes on from a checkpoint takes, on every rank but one, steps without momentum.
# - `DistributedOptimizer` averages each gradient *during* the backward pass, as soon as it is there: a **hook** of the parameter does it.
# - With `backward_passes_per_step=k` gradients accumulate over k backward passes, and are averaged over the ranks once, in the last of them. Who divides by k? The
#   user, in the loss. (Means of means are the mistake that all trainers have made once: transformers #34191, trl #2175, torchtune #1875.)
# - `zero_grad()` between `backward()` and `step()` would throw away what was just added up, and train on zeros. Horovod raises an AssertionError, and so do you.
#
# Horovod adds a coordinator to this: the ranks agree on the order in which gradients travel, and pack small ones together. Here all ranks have the same network and so
# the same order. `ring_all_reduce(x, comm)` is lab 07's, in place.
#
# <details><summary>Hint 1: the state of an optimizer</summary>
#
# `optimizer.state[param]` is a dict by names, `{"momentum_buffer": tensor}` for SGD; the parameters are in `group["params"]` of each `group` of
# `optimizer.param_groups`. All ranks must broadcast in the same order: go through the parameters, and through `sorted(state)`.
# </details>
# <details><summary>Hint 2: counting passes</summary>
#
# A dict `self.left`, for each parameter the passes that are still to come: `passes` at first. The hook counts down; at 0 it averages. `step` sets all of them back.
# </details>
# <details><summary>Hint 3: zero_grad</summary>
#
# Between the last backward pass and the step there are parameters whose `left` is 0, and at no other time.
# </details>


# %%
def allreduce(x: Tensor, comm, average: bool = True) -> Tensor:
    """A new tensor: the mean of all ranks' x, or their sum; x is left alone.

    >>> mean = simulate(lambda comm: allreduce(torch.tensor([comm.rank + 1.0]), comm), 2)
    >>> mean.results[0]
    tensor([1.5000])
    """
    # BEGIN SOLUTION
    total = x.detach().clone()
    ring_all_reduce(total, comm)
    return total / comm.size if average else total
    # END SOLUTION


def broadcast_parameters(params: list[Tensor], comm, root_rank: int = 0) -> None:
    """Make all ranks' tensors those of rank `root_rank`, in place: in their own memory."""
    # BEGIN SOLUTION
    for param in params:
        comm.broadcast(param.detach(), root_rank)
    # END SOLUTION


def broadcast_optimizer_state(optimizer, comm, root_rank: int = 0) -> None:
    """Make all tensors that the optimizers keep, as momenta, those of rank `root_rank`.

    optimizer: any of torch's, with any number of groups.
    """
    # BEGIN SOLUTION
    for group in optimizer.param_groups:
        for param in group["params"]:
            state = optimizer.state[param]
            for name in sorted(state):
                comm.broadcast(state[name], root_rank)
    # END SOLUTION


class DistributedOptimizer:
    """An optimizer of torch's whose gradients are the means over all ranks.

    They travel once in `backward_passes_per_step` backward passes, during the last.
    """

    def __init__(self, optimizer, comm, backward_passes_per_step: int = 1):
        # BEGIN SOLUTION
        self.optimizer, self.comm, self.passes = optimizer, comm, backward_passes_per_step
        self.left = {}  # by parameter: the passes that are still to come
        for group in optimizer.param_groups:
            for param in group["params"]:
                if param.requires_grad:
                    self.left[param] = self.passes
                    param.register_post_accumulate_grad_hook(self.hook)
        # END SOLUTION

    def hook(self, param: Tensor) -> None:
        """Called right after a backward pass has added to `param.grad`."""
        # BEGIN SOLUTION
        self.left[param] -= 1
        if self.left[param] == 0:
            param.grad.copy_(allreduce(param.grad, self.comm))
        # END SOLUTION

    def step(self) -> None:
        """The optimizer's step, with the averaged gradients."""
        # BEGIN SOLUTION
        self.left = dict.fromkeys(self.left, self.passes)
        self.optimizer.step()
        # END SOLUTION

    def zero_grad(self) -> None:
        """Forget all gradients; AssertionError where a step with them is still to come."""
        # BEGIN SOLUTION
        if 0 in self.left.values():
            raise AssertionError("zero_grad() before step(): the sums would be lost")
        self.optimizer.zero_grad()
        # END SOLUTION


# %%
check("frameworks.horovod")

# %% [markdown]
# ## One process fewer
#
# `torchrun --nnodes=1:4 --max-restarts=3` is *elastic*: when a process dies it stops the others, and starts as many as there are now. It does not know what your
# training was doing. Every process begins at the first line of your file again, with another `WORLD_SIZE`, and all that goes on is what the file does about it: read the
# last checkpoint, find the place in the data, share the batches among as many ranks as there are.
#
#     step      0  1  2  3  4 │ 5  6  7
#     4 ranks   ■  ■  ■  ■  ■ │ ■  ■  ✗ rank 2 dies
#               saved after 5 ┘ 5  6  7  8  ...
#     3 ranks                   ■  ■  ■  ■        steps 5 and 6 are done once more, with the same samples and the same rate
#
# That a resumed training is the same training takes four things: the weights, the optimizer's momentum, the number of the step, on which the learning rate and the
# order of the samples depend, and a loss that does not depend on how many share the batch.


# %%
SAVE_EVERY = 5


def lr_at(step: int) -> float:
    """The learning rate of a step."""
    return 0.2 / (1 + step / 4)


# %% [markdown]
# {{exercise elastic}}
#
# `batches[step]` are the numbers of the samples of a step, the same for all ranks; of these rank r takes every p-th, beginning with its r-th. `loss_sum(chosen)` is the sum
# of these samples' losses, of which you take gradients. `disk.exists(name)`, `disk.read(name)`, `disk.write(name, state)`: a state is a dict of numbers, tensors, dicts
# and lists. `model.state_dict()`, `optimizer.state_dict()` and their `load_state_dict` know what belongs to it.
#
# <details><summary>Hint 1: the beginning</summary>
#
# `start = 0`; if `disk.exists("state")`, all ranks read it, load both state dicts, and `start` is its step.
# </details>
# <details><summary>Hint 2: a step</summary>
#
# Set `group["lr"] = lr_at(step)` in `optimizer.param_groups`. `loss = loss_sum(mine) / len(batches[step])`: shares of one mean, which the ranks only add up, gradients
# and losses alike. A rank without samples has loss 0.
# </details>
# <details><summary>Hint 3: saving</summary>
#
# After the step, where `(step + 1) % SAVE_EVERY == 0`: rank 0 writes, then all meet in `comm.barrier()`.
# </details>


# %%
def train_elastic(model, optimizer, loss_sum, batches, disk, comm) -> dict[int, float]:
    """Train to the last batch, from the disk's state if there is one; mean losses by step.

    Saves after every SAVE_EVERY steps; any number of ranks may go on from there. There may
    be more ranks than samples in a step.
    """
    # BEGIN SOLUTION
    start, losses = 0, {}
    if disk.exists("state"):
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    for step in range(start, len(batches)):
        optimizer.param_groups[0]["lr"] = lr_at(step)
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        for param in model.parameters():
            ring_all_reduce(param.grad, comm)
        optimizer.step()
        total = loss.detach().reshape(1).clone()
        ring_all_reduce(total, comm)
        losses[step] = total.item()
        if (step + 1) % SAVE_EVERY == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()
    return losses
    # END SOLUTION


# %%
check("frameworks.elastic")

# %% [markdown]
# ## DeepSpeed and Ray: what they are told
#
# **DeepSpeed** (Rasley et al. 2020) is ZeRO with its offload, pipelines and kernels, behind one call, `deepspeed.initialize(model=model, config=config)`, whose engine has
# `backward` and `step`. What it does stands in a configuration. Three numbers in it say one thing twice,
#
# $$\text{train\_batch\_size} = \text{train\_micro\_batch\_size\_per\_gpu} \times \text{gradient\_accumulation\_steps} \times p,$$
#
# and a name that is misspelt is a setting that you do not have.
#
# **Ray Train** (Moritz et al. 2018) starts the processes, on whatever machines there are, finds data for them, and starts them anew when they die. You give it a function,
# *the loop per worker*, and `ScalingConfig(num_workers=p)`. In it `train.get_context()` knows the rank, `train.torch.prepare_model` wraps the model in DDP on the right
# device, and `train.report(metrics, checkpoint=...)` tells the driver. All workers must call `report`, equally often: it waits for all of them.
#
# **How this is graded.** Neither is here: DeepSpeed's configuration is read strictly, by the names and types of its documentation, and no training is run with it. Ray's loop
# runs on simulated ranks with torch's DDP; `train` is a stand-in that writes down what it is told.

# %% [markdown]
# {{exercise config}}
#
# `zero_config` switches on bfloat16, clips the gradient at norm 1.0 and uses the optimizer `"Adam"` with the rate `lr`. Of the names you need `train_batch_size`,
# `train_micro_batch_size_per_gpu`, `gradient_accumulation_steps`, `zero_optimization` (with `stage`), `bf16` (with `enabled`), `gradient_clipping` and `optimizer` (with
# `type` and `params`).
#
# In `loop_per_worker`, `config` has `"model"`, a function that makes one, `"batches"`, a list of (x, y), and `"lr"`; momentum is 0.9. Shares and loss are those of `train`.
#
# <details><summary>Hint 1: the numbers</summary>
#
# `steps, rest = divmod(batch, micro * world)`; where there is a rest, `raise ValueError(f"...")` with the numbers in it.
# </details>
# <details><summary>Hint 2: the loop</summary>
#
# `context = train.get_context()` has `get_world_rank()` and `get_world_size()`. The optimizer is made after `prepare_model`. `train.report({"loss": ...})` after each step, on
# every rank, with the sum of the ranks' parts.
# </details>


# %%
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    """DeepSpeed's configuration: steps of `batch` samples, a process has `micro` at a time.

    Raises ValueError where micro * world does not divide batch.

    >>> zero_config(64, 4, 8, stage=2)["gradient_accumulation_steps"]
    2
    """
    # BEGIN SOLUTION
    steps, rest = divmod(batch, micro * world)
    if rest:
        raise ValueError(f"{micro} x {world} does not divide the batch of {batch}")
    return {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": lr}},
    }
    # END SOLUTION


def loop_per_worker(config: dict, train) -> None:
    """What each of Ray's workers does; `train` is ray.train."""
    # BEGIN SOLUTION
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = train.torch.prepare_model(config["model"]())
    optimizer = torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9)
    for x, y in config["batches"]:
        mine = slice(rank, None, world)
        loss = cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(x)
        optimizer.zero_grad()
        (world * loss).backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        train.report({"loss": total.item()})
    # END SOLUTION


# %%
check("frameworks.config")

# %% [markdown]
# ## Live: the table
#
# Now for real: `torchrun` starts two processes, and in them each tool trains LeNet-5 on the digits, and then a small transformer that learns to count on from a number, in
# float64 for twenty steps, on gloo. Ours, `hpcdl.ddp` and `hpcdl.sharding`, run on the same gloo. Python and torch start once, and each training has forks of the two
# processes to itself. DeepSpeed and Ray train too where they are installed; Ray starts processes of its own, and that takes it most of a minute.
#
# | | |
# |---|---|
# | *ready* | from the fork to the end of the first step: the process group, the tool's own modules, the prepared model |
# | *step* | the shortest of the twenty |
# | *peak* | the memory of one process at its largest |
# | *sent* | by rank 0 in a step, counted on simulated ranks, where each message is seen; DeepSpeed and Ray do not run on those |
# | *lines* | of the function in `hpcdl.training.six_tools` that prepares the model |
# | *difference* | of the losses from those of one process, the largest |
#
# Who has the shortest step, and whose losses differ from those of one process, and by how much?

# %%
guess(
    "frameworks.start",
    "Before the first tool can begin, Python and torch start in two processes. How long does that take?",
    unit="s",
)

# %%
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
begin = time.time()
command += ["-m", "hpcdl.training.six_tools"]
done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
if done.returncode:
    raise RuntimeError(f"torchrun ended with {done.returncode}:\n{done.stderr[:3000]}")
found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

# %%
HEAD = f"{'ready':>9}{'step':>10}{'peak':>9}{'sent':>10}{'lines':>7}{'difference':>12}"
right = {name: trainings.serial(task) for name, task in trainings.TASKS.items()}


def row(name: str, way: str, prepare, run: dict) -> str:
    """What one tool's training of a task took; – for what nobody measured."""
    ready = f"{run['ready']:.2f} s" if "ready" in run else "–"
    step = f"{1e3 * min(run['seconds']):.1f} ms" if "seconds" in run else "–"
    peak = f"{run['peak'] / 1e6:.0f} MB" if "peak" in run else "–"
    sent = "–"  # of tools that run on simulated ranks, where each message is seen
    if way != "Ray" and way not in trainings.DEEPSPEED:
        sent = f"{trainings.sent(prepare, trainings.TASKS[name]) / 1e3:,.0f} KB"
    lines = len(inspect.getsource(prepare).strip().splitlines())
    away = max(abs(a - b) for a, b in zip(run["losses"], right[name], strict=True))
    return f"{way:18}{ready:>9}{step:>10}{peak:>9}{sent:>10}{lines:7}{away:12.0e}"


with when_solved():
    guessed("frameworks.start")
    started = found[0]["started"] - begin
    print(f"Python and torch: {started:.1f} s until the first tool could begin")
    for name in trainings.TASKS:
        print(f"\n{name:18}{HEAD}")
        for run in (run for run in found if run["task"] == name):
            print(row(name, run["way"], trainings.installed()[run["way"]], run))
    print()
    for name in optional.PACKAGES:
        version = optional.found(name)
        print(f"{name}: {f'{version} is here' if version else f'not here. {optional.advice(name)}'}")
    if optional.found("Ray"):
        print(row("LeNet-5", "Ray", trainings.fit, trainings.fit(trainings.LENET)))
    reveal("frameworks.start", started, measured=True)

# %% [markdown]
# And yours, Horovod's interface, on simulated ranks: what it sends and what comes of it.


# %%
def yours(model, comm):
    broadcast_parameters(list(model.parameters()), comm)
    optimizer = torch.optim.SGD(model.parameters(), trainings.RATE)
    return trainings.Prepared(model, DistributedOptimizer(optimizer, comm))


with when_solved():
    for name, task in trainings.TASKS.items():
        losses = simulate(trainings.train, 2, yours, task).results[0]
        print(f"{name:18}{HEAD}\n{row(name, 'yours', yours, {'losses': losses})}\n")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - The losses are those of one process but for the last digits: the sums are added in another order, nothing else.
# - These models are small, and what a tool does around a step shows. FSDP2 and DTensor pass every operation through Python to decide where its numbers are: that is a cost
#   per operation, which a GPU with large matrices hides and two cores do not.
# - What is sent depends on the model. Of LeNet-5 DTensor cuts two linear layers, and every rank computes all convolutions; of the transformer it cuts nearly all, and its 16
#   tokens × 64 samples weigh more than the weights. FSDP2 sends less than three times half of the transformer: what is outside the blocks it keeps until backward.
# - DeepSpeed, where it is, differs in the ninth digit: its gradients travel as float32, whatever the model is in.
# - A start takes seconds, a step milliseconds. Who starts often (elastic training does) thinks about the start. Ray has a service of its own to start besides.
# - The peak is mostly torch itself. What is held of the *model* you have counted in lab {{number sharding}}.
# - Yours sends what DDP sends, to the byte: a ring is a ring.
# </details>
#
# ## Live: a seventh tool
#
# `run_on` is the library's trainer on live engines, two here. It trains LeNet-5 in float64, with the batch cut. Before the first step it predicts what a rank sends, which
# you can compare with the rows of the table; afterwards we count what rank 0 really sent.

# %%
with Cluster(n=2) as cluster:
    ranks = run_on(cluster, model="lenet", mesh="data=2", precision="fp64", steps=5)
sent, gradients = ranks[0][-1]["bytes_sent"], 8 * sum(p.numel() for p in trainings.LENET.network().parameters())
print(f"rank 0 sent {sent:,} bytes in the last step: {gradients:,} for the gradients, and {sent - gradients:,} more")

# %% [markdown]
# The few bytes more are numbers on which the ranks agree: how many samples each has, which weights took part, the loss, and the gradient's norm.

# %% [markdown]
# ## From the notebook to the cluster
#
# The same file runs under each of these; what differs is who starts the processes and how they find each other. `hpcdl.training`, LeNet-5 on the digits, is such a file:
#
#     torchrun --nproc-per-node=2 --max-restarts=1 -m hpcdl.training --checkpoint lenet.pt      # gloo or NCCL; elastic
#     mpiexec -n 2 hpcdl train --checkpoint lenet.pt                                             # MPI
#
# On a cluster a queue decides when and where. What it gets is a script for the shell, with its wishes in comments. Slurm's starts one `torchrun` on each node; the first node is
# where all of them meet. In a terminal it is `hpcdl cluster script --nodes 2 --each 4 --out job.sh -- --checkpoint lenet.pt`; here it is

# %%
print(sbatch(nodes=2, each=4, arguments=["--checkpoint", "lenet.pt"]))

# %% [markdown]
# Submit it with `sbatch job.sh`, watch it with `squeue --me`. Three things go wrong on the first day:
# - **One task for each process *and* `--nproc-per-node`.** Then every process is started `each` times. torchrun wants one task for a node; without torchrun, `srun` starts one
#   for each process and the file reads `SLURM_PROCID` for `RANK`.
# - **The wrong network interface.** Nodes have several; if the rendezvous stands still, name it: `GLOO_SOCKET_IFNAME`, `NCCL_SOCKET_IFNAME`.
# - **`--max-restarts` without a checkpoint.** The processes start anew, and so does the training, at step 0.
#
# And one for the day on which a node dies: since torch 2.5 the processes of a restart meet in a store that still has the addresses of those that ended, and now and then call
# one of them ("Connection refused", pytorch #135712, #167288). The script asks for a new store; `hpcdl.training`, started on one machine, keeps its starts apart by itself.

# %% [markdown]
# ## For those who want more
#
# No points, no check: a challenge, and the proof to ask of yourself.
#
# DDP has a place where messages can be changed: `register_comm_hook`. Give the table a seventh row, DDP with PyTorch's `powerSGD_hook` (T. Vogels et al. 2019), which sends two thin
# matrices instead of a gradient. *Proof:* the column of bytes; the difference to the serial run, which is no longer rounding; and the loss after 200 steps, beside DDP's.

# %% [markdown]
# ## Further reading
#
# - S. Li et al. 2020, "PyTorch Distributed: Experiences on accelerating data parallel training"; Y. Zhao et al. 2023, "PyTorch FSDP".
# - A. Sergeev and M. Del Balso 2018, "Horovod: fast and easy distributed deep learning in TensorFlow".
# - J. Rasley et al. 2020, "DeepSpeed"; P. Moritz et al. 2018, "Ray: A distributed framework for emerging AI applications".
# - W. Liang et al. 2025, "TorchTitan": FSDP2, DTensor, pipelines and checkpoints composed, in some thousands of lines that can be read.
