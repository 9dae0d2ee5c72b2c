# %% [markdown]
# # Lab {{number frameworks}} · Six tools, one step
# ## torchrun and DDP, FSDP2, DTensor, Horovod, DeepSpeed, Ray: the same training, six ways
#
# So far you have written what the tools do. Now you use them. Because you know what is inside, one question is enough for each tool: *which rank sends how many
# bytes, when, and which line of my code causes it?*
#
# All tools do the same training, with the same model, the same seed and the same order of samples. And all get the same check: in float64 the losses equal
# those of a single process, to $10^{-12}$. A tool may change where numbers are and when they are sent, but it must not change the training. If it does, which
# happens easily, the caller made a mistake.
#
# **You will be able to**
# - train with `torchrun` and DDP on any number of processes, with an uneven last batch, on more than one machine;
# - cut a transformer with FSDP2 and with a DTensor plan, and count what each of them sends;
# - explain Horovod's three calls, because you have written them;
# - continue with one process fewer after a process has died, and lose no sample;
# - find a mistake in a training script by what it does on several ranks;
# - choose among DDP, FSDP2, tensor parallelism and a pipeline for a model, a machine and its memory;
# - write DeepSpeed's configuration and Ray's loop with consistent numbers.
#
# **100 points, 8 exercises, about 120 minutes: 20 reading + 95 exercises + 5 runs; two extra exercises take 50 more, and have 25 of the points.** You need lab 07; labs {{number model_parallel}}
# and {{number sharding}} help. You need no GPU, and neither DeepSpeed nor Ray.
#
# | here | means |
# |---|---|
# | $p$, `rank` | number of processes of the training ("world size"), number of one of them |
# | local rank | the number of a process *on its machine*, which selects its GPU |

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
from hpcdl.cost.layout import Layout
from hpcdl.cost.machines import MACHINES
from hpcdl.cost.training import predict
from hpcdl.cost.work import Transformer
from hpcdl.nn.decoder import Decoder
from hpcdl.training import optional, run_on
from hpcdl.training import six_tools as trainings
from hpcdl.training.observed import Observed, observe
from hpcdl.widgets import guess, guessed, reveal, saying, style, when_solved
from hpcdl.widgets.pictures import six_tools

torch.set_num_threads(1)
style.use()

# %% [markdown]
# ## See it first
#
# Rows are the stages of a step, columns are the tools. Each field shows what every rank sends, for the blocks of a decoder in float32; the line below shows the
# code that you write.
#
# Which tool sends the least, for 85 million weights and 1,024 tokens on each of two ranks? Make your guess, then:
# 1. Choose each **tool** in turn. Which of them send the same, and why?
# 2. Move the **tokens**. What grows, and what does not change?
# 3. Move the **ranks** to 64. Which of these numbers grow, and by how much?

# %%
guess(
    "frameworks.least",
    "85 million weights, 1,024 tokens on each of two ranks: which tool sends the least in a step?",
    choices=("DDP", "FSDP2", "DTensor", "Horovod", "DeepSpeed", "Ray Train"),
)

# %%
guess(
    "frameworks.tokens",
    "From how many tokens per rank does DTensor send more than DDP?",
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
# 1. DDP, Horovod and Ray send the same: they sum the gradients in a ring. Ray's worker *is* DDP. DeepSpeed's first stage sends as much, in two halves, the
#    second half after the update. FSDP2 gathers the weights twice, so it sends half as much again, but keeps only a p-th.
# 2. DTensor sends activations instead of weights. So it is the only tool that depends on the tokens, and the only one in whose forward pass a rank waits for
#    the others' *results*. Its ranks share the same tokens; with the other tools each rank has tokens of its own. Backward it sends twice as much as forward:
#    q, k and v each need a sum for the gradient of their input. If you merge them into one layer, you need only one sum.
# 3. All of them grow with $(p-1)/p$, that is, less than double from 2 to 64 ranks. In a ring, the bytes per rank hardly grow, but the number of messages does.
# </details>

# %% [markdown]
# ## torchrun and DDP
#
# `torchrun --nproc-per-node=4 train.py` starts a file four times, and tells each process its rank through environment variables. On two machines with four GPUs
# each, started with `--nnodes=2`, the sixth process finds
#
# | variable | here | meaning |
# |---|---|---|
# | `RANK` | 5 | selects this process's share of the data |
# | `WORLD_SIZE` | 8 | how many processes share the data |
# | `LOCAL_RANK` | 1 | selects this process's GPU on *this machine* |
# | `MASTER_ADDR`, `MASTER_PORT` | `node0`, 29500 | where rank 0 waits for all others (`GLOO_SOCKET_IFNAME` and `NCCL_SOCKET_IFNAME` choose the network interface) |
#
# `dist.init_process_group(backend)` reads them and makes a process group. Which backend depends on where the tensors are:
#
# | | gloo | MPI | NCCL |
# |---|---|---|---|
# | broadcast, all-reduce, reduce, all-gather, all-to-all | CPU, GPU | CPU (GPU if MPI was built for it) | GPU |
# | send and receive | CPU | CPU (GPU if MPI was built for it) | GPU |
# | reduce-scatter | CPU, GPU | no | GPU |
# | comes with torch | yes | no: you must build torch with it | yes, for CUDA |
#
# On one machine, `torch.multiprocessing.spawn` can start the processes, too. Before DDP there was `DataParallel`: one process with a thread for each GPU, which
# copies the model in every step, all in one Python interpreter. `DistributedDataParallel` has a process for each GPU, and lab 07's hooks and buckets.
# `torch.distributed.rpc` calls functions in other processes, for communication that is not collective, such as lab {{number consistency}}'s server; it is no
# longer developed (pytorch #149393).
#
# The whole file, except the part that you write:
#
#     rank, world, device = place(os.environ)
#     if torch.cuda.is_available():
#         model.to(device)
#     dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
#     losses = train(os.environ, model, x, y, epochs, batch, lr)
#     dist.destroy_process_group()
#
# **How this is graded.** Your code is graded in a sandbox without a network. It runs torch's own DDP, FSDP2 and DTensor there, on a process group that sends
# its messages over the simulated machine of lab 08 (`hpcdl.training.process_group`) and counts each of them.


# %%
def order(n: int, epoch: int) -> Tensor:
    """Return the numbers of n samples in the order of an epoch, equal on all ranks."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))


# %% [markdown]
# {{exercise torchrun}}
#
# Write `place` and `train`. All ranks go through the same batches, `order(len(x), epoch).split(batch)`. From each batch, rank r takes every p-th sample,
# beginning with sample r. The last batch of an epoch is shorter, and p need not divide any batch.
#
# torch's `DistributedSampler` treats such a tail differently: it repeats samples until the shares are even, and so trains on some samples twice. (Call
# `sampler.set_epoch(epoch)` to shuffle; if you forget it, you get the same order in every epoch.) `with model.join():` lets ranks have different numbers of
# *batches*: ranks that are done answer the others' all-reduces with zeros. If the loss is right, you need neither.
#
# <details><summary>Hint 1: what DDP does with gradients</summary>
#
# It takes the mean over the ranks: 1/p of their sum. The gradient of the whole batch is the sum of all samples' gradients over their number. So: what must the loss of
# one rank be, in terms of the sum of its samples' losses, of `len(chosen)` and of p?
# </details>
# <details><summary>Hint 2: the loss to return</summary>
#
# `cross_entropy(..., reduction="sum") / len(chosen)` is this rank's part of the loss; `dist.all_reduce(part)` sums the parts in place. Detach it first.
# </details>
# <details><summary>Hint 3: no samples</summary>
#
# `x[mine]` with an empty `mine` has no rows, the sum of its losses is 0, and its gradients are zeros. DDP waits for them, so do not skip the backward pass.
# </details>


# %%
def place(env) -> tuple[int, int, str]:
    """Return rank, number of processes and CUDA device from torchrun's variables.

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
    """Train by SGD with momentum 0.9 on all processes together; return each batch's mean
    loss.

    The process group exists already. All ranks begin with rank 0's model. Send gradients
    and losses once in each step.
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
# Lab {{number sharding}}'s ZeRO-3 is `fully_shard` in torch. It changes a module in place: its parameters become **DTensors**. Each rank holds some of their
# rows, `Shard(0)`. Hooks gather them before the module's forward and backward pass, and free them afterwards. A `DeviceMesh` says which ranks share:
# `init_device_mesh("cpu", (p,))`.
#
# One call makes one **group**, which is gathered together: all parameters in the module *that no earlier call has taken*. So the order of the calls decides how
# much memory you need. The model is a small decoder, `hpcdl.nn.decoder`: an embedding, `model.blocks`, a norm and the output, which may use the embedding's
# matrix again.

# %% [markdown]
# {{exercise fsdp}}
#
# Shard the decoder, and write how its whole state is read and restored. For the state, `torch.distributed.checkpoint.state_dict` has
# `get_model_state_dict(model, options=...)` and `set_model_state_dict(model, state, options=...)`, where `StateDictOptions(full_state_dict=True)` asks for
# plain, whole tensors. Every rank must call them, because they communicate.
#
# <details><summary>Hint: the order</summary>
#
# First shard each of `model.blocks`, then the model itself, which takes the rest. A matrix that is used twice belongs to this rest. Return the model.
# </details>

# %%
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard


# %%
def shard(model: Decoder, mesh) -> nn.Module:
    """Shard the model over the ranks of the mesh and return it; each pass gathers one block
    at a time, and frees it afterwards."""
    # BEGIN SOLUTION
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)
    # END SOLUTION


def whole(model: nn.Module) -> dict[str, Tensor]:
    """Return the state of a sharded model as plain, whole tensors, by name;
    ranks other than 0 may return an empty dict."""
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
# In lab {{number model_parallel}} you cut matrices by hand: the first layer's by columns, so that each rank has a part of the activations in between, the
# second layer's by rows, with one sum at the end. With DTensors you write a **plan**, a dict from names of modules to the way they are cut:
#
#     parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
#
# | style | each rank's weights | input | output |
# |---|---|---|---|
# | `ColwiseParallel()` | rows of torch's `weight`, which are the columns of the formula's | the whole input | this rank's part of the output |
# | `RowwiseParallel()` | columns of torch's `weight` | this rank's part of the input | the whole output: a sum over the ranks |
#
# Even a wrong plan usually gives the right numbers. torch sees that a tensor is not where it is needed, and *sends it there*. This is convenient, but it can
# make a training slow without a warning. So count what is sent. `CommDebugMode` does this for one process:
#
#     with CommDebugMode() as comm_mode:
#         model(tokens)
#     comm_mode.get_comm_counts()          # {c10d_functional.all_reduce: 4}
#
# Here the process group itself records all requests, and the check reads this record.

# %% [markdown]
# {{exercise plan}}
#
# Write the decoder's plan. The decoder's blocks have `attention.q`, `attention.k`, `attention.v`, `attention.out`, `mlp.up` and `mlp.down`. Embedding, norms
# and output stay whole. Attention infers its number of heads from the output of `q`.
#
# <details><summary>Hint</summary>
#
# Make six entries for each block, `for i in range(len(model.blocks))`, with names like `f"blocks.{i}.attention.q"`.
# </details>

# %%
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel


# %%
def plan(model: Decoder) -> dict:
    """Return the plan of the decoder's tensor parallelism: a style by name of the module.

    Cut all six matrices of each block. In the forward pass a block then sends two sums, and
    nothing else.

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
# Horovod (Sergeev and Del Balso 2018) took the ring that Baidu had brought from MPI to deep learning, and turned it into what all tools have offered since: *a
# training script for one GPU, plus a few lines*. These lines are
#
#     hvd.init()                                               # mpiexec has started the processes
#     optimizer = hvd.DistributedOptimizer(optimizer)          # gradients are averaged before each step
#     hvd.broadcast_parameters(model.state_dict(), root_rank=0)
#     hvd.broadcast_optimizer_state(optimizer, root_rank=0)
#
# Horovod does this for PyTorch, TensorFlow, Keras and MXNet, over MPI, NCCL or gloo. Scripts for TensorFlow use the same ideas under other names:
#
# | here, with torch | Horovod | TensorFlow (`tf.distribute`) |
# |---|---|---|
# | `torchrun` starts the processes | `horovodrun`, `mpiexec` | you start one process on each worker |
# | `RANK`, `LOCAL_RANK`, `WORLD_SIZE` | `hvd.rank()`, `hvd.local_rank()`, `hvd.size()` | the task's index and the list of workers, in `TF_CONFIG` |
# | `dist.init_process_group` | `hvd.init()` | `MultiWorkerMirroredStrategy()` |
# | DDP's broadcast of the weights | `hvd.broadcast_parameters` | variables made in `strategy.scope()` are mirrored |
# | `DistributedDataParallel` | `hvd.DistributedOptimizer` | `strategy.run`, and the optimizer's `apply_gradients` |
# | bucket, `bucket_cap_mb` | fusion buffer, `HOROVOD_FUSION_THRESHOLD` | pack, `bytes_per_pack` |
# | `dist.all_reduce` | `hvd.allreduce` | `strategy.reduce` |
# | `DistributedSampler` | `dataset.shard(hvd.size(), hvd.rank())` | `strategy.experimental_distribute_dataset` |
# | lab {{number consistency}}'s server | – | `ParameterServerStrategy` |
#
# The last release, 0.28.1, is from June 2023 and does not compile with today's torch, which needs C++17 (issues #3996 and #4014 of horovod/horovod; the
# fix, #3998, was merged but never released). Its interface lives on, and takes only forty lines. Write them on our communicator.

# %% [markdown]
# {{exercise horovod}}
#
# Keep Horovod's promises:
# - `allreduce(x, comm, average=True)` returns a new tensor, the mean or the sum over the ranks, and does not change `x`.
# - The two broadcasts work in place. Without the second one, a training resumed from a checkpoint would take steps without momentum on every rank except one.
# - `DistributedOptimizer` averages each gradient *during* the backward pass, as soon as it is ready, in a **hook** of the parameter.
# - With `backward_passes_per_step=k` gradients accumulate over k backward passes, and are averaged over the ranks once, in the last pass. The user must divide
#   the loss by k. (All trainers have once made the mistake of taking means of means: transformers #34191, trl #2175, torchtune #1875.)
# - `zero_grad()` between `backward()` and `step()` would discard the averaged gradients, and train on zeros. Horovod raises an AssertionError, and so must you.
#
# Horovod also has a coordinator: the ranks agree on the order in which gradients are sent, and pack small ones together. Here all ranks have the same network
# and so the same order. `ring_all_reduce(x, comm)` is lab 07's, in place.
#
# <details><summary>Hint 1: the state of an optimizer</summary>
#
# `optimizer.state[param]` is a dict, `{"momentum_buffer": tensor}` for SGD; the parameters are in `group["params"]` of each `group` of
# `optimizer.param_groups`. All ranks must broadcast in the same order: go through the parameters, and through `sorted(state)`.
# </details>
# <details><summary>Hint 2: counting passes</summary>
#
# Keep a dict `self.left` with the number of remaining passes for each parameter, initially `passes`. The hook counts down; at 0 it averages. `step` resets all
# counts.
# </details>
# <details><summary>Hint 3: zero_grad</summary>
#
# Only between the last backward pass and the step are there parameters whose `left` is 0.
# </details>


# %%
def allreduce(x: Tensor, comm, average: bool = True) -> Tensor:
    """Return the mean or the sum of all ranks' x in a new tensor, without changing x.

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
    """Overwrite all ranks' tensors, in place, with those of rank `root_rank`."""
    # BEGIN SOLUTION
    for param in params:
        comm.broadcast(param.detach(), root_rank)
    # END SOLUTION


def broadcast_optimizer_state(optimizer, comm, root_rank: int = 0) -> None:
    """Overwrite the optimizer's tensors (such as momenta) with those of rank `root_rank`.

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
    """Wrap a torch optimizer, of any number of groups, so that its gradients are the means
    over all ranks.

    Gradients are sent once in `backward_passes_per_step` backward passes, during the last.
    """

    def __init__(self, optimizer, comm, backward_passes_per_step: int = 1):
        # BEGIN SOLUTION
        self.optimizer, self.comm, self.passes = optimizer, comm, backward_passes_per_step
        self.left = {}  # by parameter: the remaining passes
        for group in optimizer.param_groups:
            for param in group["params"]:
                if param.requires_grad:
                    self.left[param] = self.passes
                    param.register_post_accumulate_grad_hook(self.hook)
        # END SOLUTION

    def hook(self, param: Tensor) -> None:
        """Count a pass; called right after a backward pass has added to `param.grad`."""
        # BEGIN SOLUTION
        self.left[param] -= 1
        if self.left[param] == 0:
            param.grad.copy_(allreduce(param.grad, self.comm))
        # END SOLUTION

    def step(self) -> None:
        """Do the optimizer's step with the averaged gradients."""
        # BEGIN SOLUTION
        self.left = dict.fromkeys(self.left, self.passes)
        self.optimizer.step()
        # END SOLUTION

    def zero_grad(self) -> None:
        """Reset all gradients. Raises AssertionError if their step has not been done
        yet."""
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
# `torchrun --nnodes=1:4 --max-restarts=3` is *elastic*: when a process dies, it stops the others, and starts as many processes as are now possible. It does not
# know what your training was doing. Every process begins again at the first line of your file, with a different `WORLD_SIZE`. Your file must do the rest: read
# the last checkpoint, find the position in the data, and share the batches among the current ranks.
#
#     step      0  1  2  3  4 │ 5  6  7
#     4 ranks   ■  ■  ■  ■  ■ │ ■  ■  ✗ rank 2 dies
#               saved after 5 ┘ 5  6  7  8  ...
#     3 ranks                   ■  ■  ■  ■        steps 5 and 6 are repeated, with the same samples and the same rate
#
# A resumed training needs four things to be the same training: the weights; the optimizer's momentum; the number of the step, which determines the learning
# rate and the order of the samples; and a loss that does not depend on how many ranks share the batch.


# %%
SAVE_EVERY = 5


def lr_at(step: int) -> float:
    """Return the learning rate of a step."""
    return 0.2 / (1 + step / 4)


# %% [markdown]
# {{exercise elastic}}
#
# Write the training that continues from the disk. `batches[step]` holds the numbers of a step's samples, equal on all ranks; rank r takes every p-th of them,
# beginning with number r. `loss_sum(chosen)` is the sum of the chosen samples' losses, which you differentiate. The disk has `disk.exists(name)`,
# `disk.read(name)` and `disk.write(name, state)`; a state is a dict of numbers, tensors, dicts and lists. Use `model.state_dict()`, `optimizer.state_dict()`
# and their `load_state_dict`.
#
# <details><summary>Hint 1: the beginning</summary>
#
# `start = 0`; if `disk.exists("state")`, all ranks read it, load both state dicts, and `start` is its step.
# </details>
# <details><summary>Hint 2: a step</summary>
#
# Set `group["lr"] = lr_at(step)` in `optimizer.param_groups`. `loss = loss_sum(mine) / len(batches[step])` is a share of one mean, so the ranks only sum
# gradients and losses. A rank without samples has loss 0.
# </details>
# <details><summary>Hint 3: saving</summary>
#
# After the step, if `(step + 1) % SAVE_EVERY == 0`, rank 0 writes; then all ranks call `comm.barrier()`.
# </details>


# %%
def train_elastic(model, optimizer, loss_sum, batches, disk, comm) -> dict[int, float]:
    """Train to the last batch, from the disk's state if any; return the mean losses of the
    steps that this call does, by step.

    Save after every SAVE_EVERY steps: one rank writes, and no rank begins the next step
    before that. Any number of ranks may continue from there. There may be more ranks than
    samples in a step.
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
# ## Five scripts that train wrong
#
# On one process, these five scripts end without an error. Each has **one** mistake, and all five mistakes happen in real trainings. Three of them print no error on
# several ranks, either: the training is only worse. One fails after a kill, and one when another rank gets a message that it does not expect.


# %%
def update(model: nn.Module, optimizer, comm) -> None:
    """Sum all ranks' gradients, in a ring, and do the optimizer's step."""
    for param in model.parameters():
        ring_all_reduce(param.grad, comm)
    optimizer.step()


def broken_shuffled(model, optimizer, loss_sum, sampler, batch, epochs, comm):
    for _ in range(epochs):
        for mine in torch.tensor(list(sampler)).split(batch):
            optimizer.zero_grad()
            loss = loss_sum(mine) / (len(mine) * comm.size)
            loss.backward()
            update(model, optimizer, comm)


def broken_accumulated(model, optimizer, loss_sum, batches, passes, comm):
    for chosen in batches:
        optimizer.zero_grad()
        for part in chosen[comm.rank :: comm.size].chunk(passes):
            loss = loss_sum(part) / (len(part) * comm.size)
            loss.backward()
        update(model, optimizer, comm)


def broken_placed(env, model, optimizer, loss_sum, batches, comm):
    rank, world = int(env["LOCAL_RANK"]), int(env["WORLD_SIZE"])
    device = f"cuda:{rank}"  # (the model would move there)
    for chosen in batches:
        optimizer.zero_grad()
        loss = loss_sum(chosen[rank::world]) / len(chosen)
        loss.backward()
        update(model, optimizer, comm)
    return device


def broken_saved(model, optimizer, loss_sum, batches, every, disk, comm):
    start = 0
    try:
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    except FileNotFoundError:
        pass  # the first start
    for step in range(start, len(batches)):
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        update(model, optimizer, comm)
        if (step + 1) % every == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("state", {**state, "step": step + 1})
            comm.barrier()


def broken_logged(model, optimizer, loss_sum, batches, every, log, comm):
    for step, chosen in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        if step % every == 0 and comm.rank == 0:
            total = loss.detach().reshape(1).clone()
            ring_all_reduce(total, comm)
            log(step, total.item())
        update(model, optimizer, comm)


# %% [markdown]
# `observe(script)` runs a script on four simulated ranks, two on each of two machines, with 16 samples. It reports which samples each rank uses in each pass (`|`
# separates passes), how far the weights end from those of one process, and what happens after a kill. So look for a mistake before you read the code again.
#
# `broken_placed` trains on two machines with two processes each. What share of each batch does no rank ever see?

# %%
guess("frameworks.unseen", "What share of each batch does no rank of broken_placed see?", unit="%")

# %%
guessed("frameworks.unseen")
print(*map(observe, (broken_shuffled, broken_accumulated, broken_placed, broken_saved, broken_logged)), sep="\n\n")
samples_seen = Observed(broken_placed, p=4, per_node=2).asked(0)
reveal("frameworks.unseen", 100 * (1 - len({i for mine in samples_seen for i in mine}) / sum(map(len, samples_seen))))

# %% [markdown]
# {{exercise broken}}
#
# Copy each script under its new name, and mend its mistake. One or two lines of each change; arguments, shares of the samples and calls of `update` are right. Run
# `observe` on your own version: one process and four ranks must end with the same weights.
#
# <details><summary>Hint 1: the samples</summary>
#
# Compare the samples of rank 0 before and after eight passes of `broken_shuffled`, and the samples of ranks 0 and 2 of `broken_placed`.
# </details>
# <details><summary>Hint 2: the gradient</summary>
#
# Each rank adds the gradients of its passes, and `update` adds those of the ranks. By what must each sum of losses be divided, so that the total is the mean over the
# whole step, even if its parts have different sizes?
# </details>
# <details><summary>Hint 3: the disk</summary>
#
# Writing takes time, and a kill leaves half of the file. Renaming is atomic: at every moment the name means a whole file, the old one or the new one.
# </details>
# <details><summary>Hint 4: the deadlock</summary>
#
# Who calls `ring_all_reduce` in `broken_logged`, and who would have to? Who may call `log`?
# </details>


# %%
def shuffled(model, optimizer, loss_sum, sampler, batch: int, epochs: int, comm) -> None:
    """Train for some epochs, each in the order that DistributedSampler has for that epoch.

    sampler: this rank's; it gives numbers of samples. batch: the samples of a rank in a
    step. The first epoch has number 0.
    """
    # BEGIN SOLUTION
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for mine in torch.tensor(list(sampler)).split(batch):
            optimizer.zero_grad()
            loss = loss_sum(mine) / (len(mine) * comm.size)
            loss.backward()
            update(model, optimizer, comm)
    # END SOLUTION


def accumulated(model, optimizer, loss_sum, batches: list, passes: int, comm) -> None:
    """Do a step for each batch, with the gradient of the mean over all its samples.

    Each rank takes its share in at most `passes` passes. The parts of a batch may have
    different sizes; each rank has at least one sample.
    """
    # BEGIN SOLUTION
    for chosen in batches:
        optimizer.zero_grad()
        for part in chosen[comm.rank :: comm.size].chunk(passes):
            loss = loss_sum(part) / len(chosen)
            loss.backward()
        update(model, optimizer, comm)
    # END SOLUTION


def placed(env: dict, model, optimizer, loss_sum, batches: list, comm) -> str:
    """Train on all processes of all machines, each sample of a batch on one of them; return
    the name of this process's GPU, such as "cuda:1".

    env: torchrun's variables. Each machine numbers its GPUs 0, 1, ...
    """
    # BEGIN SOLUTION
    rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
    device = f"cuda:{env['LOCAL_RANK']}"
    for chosen in batches:
        optimizer.zero_grad()
        loss = loss_sum(chosen[rank::world]) / len(chosen)
        loss.backward()
        update(model, optimizer, comm)
    return device
    # END SOLUTION


def saved(model, optimizer, loss_sum, batches: list, every: int, disk, comm) -> None:
    """Train to the last batch, from the disk's state if any; save after every `every`
    steps: one rank writes one file.

    All ranks may be killed at any moment, even in the middle of a write. Started again,
    the script continues from the last state that was complete, and ends with the same
    weights. `disk.rename(old, new)` takes no time, and replaces a file `new`.
    """
    # BEGIN SOLUTION
    start = 0
    try:
        state = disk.read("state")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    except FileNotFoundError:
        pass  # the first start
    for step in range(start, len(batches)):
        optimizer.zero_grad()
        loss = loss_sum(batches[step][comm.rank :: comm.size]) / len(batches[step])
        loss.backward()
        update(model, optimizer, comm)
        if (step + 1) % every == 0:
            if comm.rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                disk.write("new state", {**state, "step": step + 1})
                disk.rename("new state", "state")
            comm.barrier()
    # END SOLUTION


def logged(model, optimizer, loss_sum, batches: list, every: int, log, comm) -> None:
    """Train on all batches. At steps 0, `every`, 2 * `every`, ... rank 0, and no other,
    calls `log(step, loss)`.

    loss: the mean over the batch's samples, a float, before the update. Gradients travel
    once in each step; losses only at the steps that are logged.
    """
    # BEGIN SOLUTION
    for step, chosen in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        loss.backward()
        if step % every == 0:
            total = loss.detach().reshape(1).clone()
            ring_all_reduce(total, comm)
            if comm.rank == 0:
                log(step, total.item())
        update(model, optimizer, comm)
    # END SOLUTION


# %%
check("frameworks.broken")

# %%
with when_solved():
    print(*map(observe, (shuffled, accumulated, placed, saved, logged)), sep="\n\n")

# %% [markdown]
# ## Which when?
#
# DDP, FSDP2, tensor parallelism and a pipeline: which of them would you use? Two questions decide. Does it **fit**? And of the ways that fit, which is the
# **fastest**? For a decoder of $P$ parameters, trained by Adam in 16 bits, with one sample at a time on each rank:
#
# | | weights (2 bytes), gradients (2), Adam's states (12) | activations of each layer | possible if p divides |
# |---|---|---|---|
# | `"DDP"` | $16 P$ | $A(1)$ | the batch |
# | `"FSDP2"` | $16 P / p$ | $A(1)$ | the batch |
# | `"tensor"` | $16 P / p$ | $A(p)$ | the heads |
# | `"pipeline"` | $16 P / p$ | $A(1)$, of $1/p$ of the layers, times $p$ samples on the first stage | the layers |
#
# $A(t) = s h \left(10 + \frac{24}{t} + \frac{5 a s}{h t}\right)$ bytes is what a layer keeps of one sample, for sequences of $s$ tokens, hidden size $h$ and $a$ heads, if $t$
# ranks share the layer (Korthikanti et al. 2022). The layer that FSDP2 has gathered is small, and does not count here.
#
# The seconds come from the library's cost model, which you know from lab {{number scaling}}: `seconds(model, machine, batch, data=8)` predicts a step on 8 ranks;
# `data=8, zero=3` is FSDP2, `tensor=8` and `pipeline=8` cut the network. The model is the tuple `(layers, hidden, sequence, vocabulary, heads)`; the machine
# is a name such as `"H100 (DGX)"`.


# %%
def seconds(model: tuple, machine: str, batch: int, **cut: int) -> float:
    """Return the predicted seconds of a step; cut is what `Layout` takes, such as data=8."""
    layout = Layout(**cut, microbatch=1, precision="fp16", itemsize=2, update_bytes=28)
    return predict(Transformer(*model), MACHINES[machine], layout, batch).seconds


# %% [markdown]
# {{exercise which_when}}
#
# Write the table as a function, and choose. `Transformer(*model).parameters` is $P$.
#
# <details><summary>Hint 1: holds</summary>
#
# Only DDP does not divide the 16 P, and only tensor parallelism has t = p. For the pipeline, p samples of a p-th of the layers are as much as one sample of all layers.
# </details>
# <details><summary>Hint 2: which</summary>
#
# Make a dict from each way to what `seconds` needs: `data=ranks`; `data=ranks, zero=3`; `tensor=ranks`; `pipeline=ranks`. Keep the ways that are possible and that fit, and
# only then predict.
# </details>


# %%
def holds(way: str, model: tuple[int, int, int, int, int], ranks: int) -> float:
    """Return the bytes that a rank holds: weights, gradients, states, and the activations
    of all its layers.

    way: "DDP", "FSDP2", "tensor" or "pipeline". model: layers, hidden, sequence,
    vocabulary, heads.

    >>> round(holds("DDP", (24, 1024, 512, 50_000, 16), ranks=8) / 1e9, 2)
    6.6
    """
    # BEGIN SOLUTION
    layers, hidden, sequence, _, heads = model
    weights = 16 * Transformer(*model).parameters / (1 if way == "DDP" else ranks)
    t = ranks if way == "tensor" else 1
    return weights + layers * sequence * hidden * (10 + 24 / t + 5 * heads * sequence / (hidden * t))
    # END SOLUTION


def which(
    model: tuple[int, int, int, int, int],
    machine: str,
    ranks: int,
    batch: int,
    budget: float,
) -> str | None:
    """Return the way with the fewest `seconds` of a step among the ways that are possible
    and hold at most `budget` bytes on each rank; None if no way does.

    A way within the prediction's interval of the fastest is right, too.

    >>> which((24, 1024, 512, 50_000, 16), "V100 (DGX-1)", ranks=32, batch=512, budget=8e9)
    'DDP'
    """
    # BEGIN SOLUTION
    cuts = {
        "DDP": (batch, {"data": ranks}),
        "FSDP2": (batch, {"data": ranks, "zero": 3}),
        "tensor": (model[4], {"tensor": ranks}),
        "pipeline": (model[0], {"pipeline": ranks}),
    }
    found = {}
    for way, (divided, cut) in cuts.items():
        if divided % ranks == 0 and holds(way, model, ranks) <= budget:
            found[way] = seconds(model, machine, batch, **cut)
    return min(found, key=found.get, default=None)
    # END SOLUTION


# %%
check("frameworks.which_when")

# %% [markdown]
# A model with 7 billion parameters (32 layers of 4,096 features, sequences of 512 tokens), a step of 64 samples on the 8 H100 of one server, with 24 GB left on each: which
# way is the fastest?

# %%
guess(
    "frameworks.fastest",
    "7 billion parameters, 64 samples, 8 H100, 24 GB each: which way is the fastest?",
    choices=("DDP", "FSDP2", "tensor", "pipeline"),
)

# %%
with when_solved():
    guessed("frameworks.fastest")
    seven = (32, 4096, 512, 50_000, 32)
    reveal("frameworks.fastest", which(seven, "H100 (DGX)", 8, 64, 24e9))
    budgets = (8e9, 16e9, 24e9, 80e9, 160e9)
    print("7 B parameters: the way, by the bytes that each rank may hold")
    print(f"{'':13}{'ranks':>6}{'batch':>6}" + "".join(f"{budget / 1e9:>7.0f} GB" for budget in budgets))
    for machine in ("V100 (DGX-1)", "H100 (DGX)"):
        for ranks in (8, 32):
            for batch in (8, 64, 512):
                chosen = [which(seven, machine, ranks, batch, budget) or "–" for budget in budgets]
                print(f"{machine:13}{ranks:6}{batch:6}" + "".join(f"{way:>10}" for way in chosen))
    print(f"DDP needs {holds('DDP', seven, 8) / 1e9:.0f} GB on each rank")

# %% [markdown]
# <details><summary>What did you see?</summary>
#
# - With 16 GB on each of 8 ranks only tensor parallelism fits: it also divides most of the activations. It sums activations in each layer, so it is rarely the fastest.
# - If a batch has only one sample for each rank, FSDP2 gathers the weights once in a step, and is hard to beat within a server. With 64 samples on 8 ranks it gathers
#   them eight times. Then a pipeline is faster on H100s, which compute faster than they send; on V100s FSDP2 is still ahead.
# - Over several servers, gathering all weights is slow. A pipeline sends only one activation for each sample, between two stages.
# - DDP is the fastest as soon as it fits, if the batch is large. But here it needs more bytes than any of these GPUs has: this is why the other ways exist.
#   Real trainings mix the ways, and recompute activations; lab {{number sharding}} has both.
# </details>

# %% [markdown]
# ## DeepSpeed and Ray: their settings
#
# **DeepSpeed** (Rasley et al. 2020) is ZeRO with its offload, pipelines and kernels, behind one call, `deepspeed.initialize(model=model, config=config)`, whose
# engine has `backward` and `step`. A configuration controls what it does. Three of its numbers must fit together,
#
# $$\text{train\_batch\_size} = \text{train\_micro\_batch\_size\_per\_gpu} \times \text{gradient\_accumulation\_steps} \times p,$$
#
# and a misspelt name means that the setting has no effect.
#
# **Ray Train** (Moritz et al. 2018) starts the processes on the available machines, finds data for them, and restarts them when they die. You give it a
# function, *the loop per worker*, and `ScalingConfig(num_workers=p)`. In the function, `train.get_context()` knows the rank, `train.torch.prepare_model` wraps
# the model in DDP on the right device, and `train.report(metrics, checkpoint=...)` reports to the driver. All workers must call `report` equally often, because
# it waits for all of them.
#
# **How this is graded.** Neither tool is installed in the sandbox. The check compares DeepSpeed's configuration strictly with the names and types of its
# documentation, those that this exercise needs or mentions, and runs no training with it. Ray's loop runs on simulated ranks with torch's DDP; `train` is a stand-in that records the calls.

# %% [markdown]
# {{exercise config}}
#
# Write DeepSpeed's configuration and Ray's loop. `zero_config` switches on bfloat16, clips the gradient at norm 1.0 and uses the optimizer `"Adam"` with the
# rate `lr`. You need the names `train_batch_size`, `train_micro_batch_size_per_gpu`, `gradient_accumulation_steps`, `zero_optimization` (with `stage`), `bf16`
# (with `enabled`), `gradient_clipping` and `optimizer` (with `type` and `params`).
#
# In `loop_per_worker`, `config` has `"model"`, a function that makes a model, `"batches"`, a list of (x, y), and `"lr"`; momentum is 0.9. Use the same shares
# and loss as in `train`.
#
# <details><summary>Hint 1: the numbers</summary>
#
# `steps, rest = divmod(batch, micro * world)`; if there is a rest, `raise ValueError(f"...")` with the numbers in the message.
# </details>
# <details><summary>Hint 2: the loop</summary>
#
# `context = train.get_context()` has `get_world_rank()` and `get_world_size()`. Make the optimizer after `prepare_model`. Call `train.report({"loss": ...})`
# after each step, on every rank, with the sum of the ranks' parts.
# </details>


# %%
def zero_config(batch: int, micro: int, world: int, stage: int, lr: float = 1e-3) -> dict:
    """Return DeepSpeed's configuration for steps of `batch` samples, `micro` at a time per
    process.

    Raises ValueError if micro * world does not divide batch.

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
    """Train as one of Ray's workers; `train` is ray.train. After each step, report the mean
    loss of the whole batch as "loss", on every rank."""
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
# Now for real: `torchrun` starts two processes. In them each tool trains LeNet-5 on the digits, and then a small transformer that learns to count up from a
# number, in float64 for twenty steps, on gloo. Our `hpcdl.ddp` and `hpcdl.sharding` run on the same gloo. Python and torch start once, and each training gets
# its own forks of the two processes. DeepSpeed and Ray train, too, if they are installed; Ray starts its own processes, which takes most of a minute.
#
# | | |
# |---|---|
# | *ready* | from the fork to the end of the first step: the process group, the tool's own modules, the prepared model |
# | *step* | the shortest of the twenty |
# | *peak* | the memory of one process at its largest |
# | *sent* | by rank 0 in a step, counted on simulated ranks, which see each message; DeepSpeed and Ray do not run there |
# | *lines* | of the function in `hpcdl.training.six_tools` that prepares the model |
# | *difference* | the largest difference between the losses and those of one process |
#
# Which tool has the shortest step? Whose losses differ from those of one process, and by how much?

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
with saying("two processes import torch, and train with one tool after another"):
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
if done.returncode:
    raise RuntimeError(f"torchrun ended with {done.returncode}:\n{done.stderr[:3000]}")
found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

# %%
HEAD = f"{'ready':>9}{'step':>10}{'peak':>9}{'sent':>10}{'lines':>7}{'difference':>12}"
right = {name: trainings.serial(task) for name, task in trainings.TASKS.items()}


def row(name: str, way: str, prepare, run: dict) -> str:
    """Return a table row for one tool's training of a task, with – for what was not measured."""
    ready = f"{run['ready']:.2f} s" if "ready" in run else "–"
    step = f"{1e3 * min(run['seconds']):.1f} ms" if "seconds" in run else "–"
    peak = f"{run['peak'] / 1e6:.0f} MB" if "peak" in run else "–"
    sent = "–"  # only for tools that run on simulated ranks
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
# And here is your Horovod interface on simulated ranks, with the bytes that it sends and its losses.


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
# - The losses equal those of one process except in the last digits, only because the sums are added in another order.
# - These models are small, so the work of a tool around a step shows. FSDP2 and DTensor pass every operation through Python to decide where its numbers are. A
#   GPU with large matrices hides this cost per operation; two cores do not.
# - The bytes sent depend on the model. In LeNet-5, DTensor cuts two linear layers, and every rank computes all convolutions. In the transformer it cuts nearly
#   everything, and 16 tokens × 64 samples are more bytes than the weights. For the transformer FSDP2 sends a little less than 1.5 times DDP's bytes, because it
#   keeps the layers outside the blocks until backward.
# - DeepSpeed, if installed, differs in the ninth digit: it sends gradients as float32, whatever the model's type.
# - A start takes seconds, a step milliseconds. If you start often, as in elastic training, think about the start. Ray must also start its own service.
# - The peak is mostly torch itself. You counted the memory of the *model* in lab {{number sharding}}.
# - Yours sends exactly as many bytes as DDP, because both use a ring.
# </details>
#
# ## Live: a seventh tool
#
# `run_on` is the library's trainer on live engines, two here. It trains LeNet-5 in float64 with data parallelism. Before the first step it predicts what a rank
# sends; compare this with the rows of the table. Afterwards we count what rank 0 really sent.

# %%
with Cluster(n=2) as cluster:
    ranks = run_on(cluster, model="lenet", mesh="data=2", precision="fp64", steps=5)
sent, gradients = ranks[0][-1]["bytes_sent"], 8 * sum(p.numel() for p in trainings.LENET.network().parameters())
print(f"rank 0 sent {sent:,} bytes in the last step: {gradients:,} for the gradients, and {sent - gradients:,} more")

# %% [markdown]
# The few extra bytes are numbers that the ranks exchange: how many samples each has, which weights took part, the loss, and the gradient's norm.

# %% [markdown]
# ## From the notebook to the cluster
#
# The same file runs under each of these commands; they differ only in what starts the processes, and how the processes find each other. `hpcdl.training`, which
# trains LeNet-5 on the digits, is such a file:
#
#     torchrun --nproc-per-node=2 --max-restarts=1 -m hpcdl.training --checkpoint lenet.pt      # gloo or NCCL; elastic
#     mpiexec -n 2 hpcdl train --checkpoint lenet.pt                                             # MPI
#
# For a model on a mesh, `hpcdl train --model gpt --mesh data=2 --log run --profile` also records what each rank does, and `hpcdl trace run` makes one timeline of it
# (lab {{number machines}}).
#
# On a cluster a queue decides when and where your training runs. You submit a shell script, with your requests in comments. This Slurm script starts one
# `torchrun` on each node; all of them meet at the first node. In a terminal, write
# `hpcdl cluster script --nodes 2 --each 4 --out job.sh -- --checkpoint lenet.pt`; here, write

# %%
print(sbatch(nodes=2, each=4, arguments=["--checkpoint", "lenet.pt"]))

# %% [markdown]
# Submit it with `sbatch job.sh`, and watch it with `squeue --me`. Three things often go wrong on the first day:
# - **One task for each process *and* `--nproc-per-node`.** Then every process is started `each` times. torchrun needs one task per node. Without torchrun,
#   `srun` starts one task per process, and the file reads `SLURM_PROCID` as `RANK`.
# - **The wrong network interface.** Nodes have several; if the rendezvous hangs, name the interface: `GLOO_SOCKET_IFNAME`, `NCCL_SOCKET_IFNAME`.
# - **`--max-restarts` without a checkpoint.** The processes restart, and so does the training, at step 0.
#
# A fourth thing can go wrong when a node dies: since torch 2.5, restarted processes meet in a store that still has the addresses of the ended processes, and
# sometimes contact one of them ("Connection refused", pytorch #135712, #167288). The script requests a new store; on one machine, `hpcdl.training` puts
# the number of the start before each key of the store.

# %% [markdown]
# ## For those who want more
#
# This challenge has no points and no check, but a proof to demand of yourself.
#
# DDP lets you change its messages: `register_comm_hook`. Give the table a seventh row, DDP with PyTorch's `powerSGD_hook` (T. Vogels et al. 2019), which sends
# two thin matrices instead of a gradient. *Proof:* the column of bytes; the difference to the serial run, which is no longer rounding; and the loss after 200
# steps, next to DDP's.

# %% [markdown]
# ## Further reading
#
# - S. Li et al. 2020, "PyTorch Distributed: Experiences on accelerating data parallel training"; Y. Zhao et al. 2023, "PyTorch FSDP".
# - A. Sergeev and M. Del Balso 2018, "Horovod: fast and easy distributed deep learning in TensorFlow".
# - J. Rasley et al. 2020, "DeepSpeed"; P. Moritz et al. 2018, "Ray: A distributed framework for emerging AI applications".
# - W. Liang et al. 2025, "TorchTitan": FSDP2, DTensor, pipelines and checkpoints combined, in a few thousand readable lines.
