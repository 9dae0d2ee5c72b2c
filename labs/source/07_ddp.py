# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 07 · Many machines, one model
#
# **This is a first version of the lab.** It shows data-parallel training for real, on live MPI processes beside this notebook, and
# it is short: there is nothing to write and nothing is graded yet. The exercises (shards, ring all-reduce, buckets, overlap) come
# in a later version.
#
# After it you can
#
# - say what each rank holds and what it sends in data-parallel training, and why the replicas stay equal;
# - start engines from a notebook, run one function on all of them, and watch them while they work;
# - read the error when a rank fails;
# - start the same code as a program with `mpiexec`.
#
# Time: about 15 minutes. Needs: MPI, which came with this course's installation. No GPU.

# %% [markdown]
# ## The idea
#
# Every rank (process) has **the whole model** and **a part of each batch**. One step of synchronous data-parallel descent:
#
# ```
#                    global batch of N images
#           ┌────────────┬────────────┬────────────┐
#        n_0 images   n_1 images   n_2 images   n_3 images
#           │            │            │            │
#        rank 0       rank 1       rank 2       rank 3        each: forward, backward
#           │ g_0        │ g_1        │ g_2        │ g_3
#           └────────────┴─ all-reduce ┴────────────┘         g = Σ_r (n_r / N) g_r
#           │ g          │ g          │ g          │ g
#        w ← w − lr g on every rank: the same weights again
# ```
#
# The loss of a batch is a mean over its images, so the gradient of the global batch is the mean of the ranks' gradients, each weighted
# by how many images $n_r$ it saw:
#
# $$ g = \sum_{r=0}^{p-1} \frac{n_r}{N}\, g_r, \qquad N = \sum_r n_r. $$
#
# All ranks begin with the same weights (rank 0 sends its own to all) and take the same step with the same $g$. So they hold the same
# weights after every step, **to the last bit**, although nobody ever sends weights again.

# %% [markdown]
# ## Start four engines
#
# An *engine* is a Python process that waits for work. These four are MPI processes: started together by `mpiexec`, each with its
# *rank* 0 to 3. They live beside this notebook's kernel and end with it.

# %%
from hpcdl.cluster import Cluster, ClusterError, publish

cluster = Cluster(n=4).start()


# %% [markdown]
# `cluster.run(f, ...)` calls `f(comm, ...)` on every rank and returns the results in the order of the ranks. `comm` is the *communicator*:
# it knows this rank and how many there are, and it sends and receives.


# %%
def hello(comm):
    import os

    return f"rank {comm.rank} of {comm.size}, process {os.getpid()}"


cluster.run(hello)

# %% [markdown]
# ### The command behind it
#
# `Cluster(n=4)` runs `mpiexec -n 4 python -m hpcdl.cluster.engine` and a small hub through which the notebook talks to the four.
# Without a notebook, the same function would be called by a script that every rank runs from top to bottom:
#
# ```python
# from hpcdl.comm import MPIComm       # hello.py, started with: mpiexec -n 4 python hello.py
#
# print(hello(MPIComm()))
# ```

# %% [markdown]
# ## An all-reduce
#
# The one operation that data parallelism needs: every rank has a tensor, and afterwards every rank has their sum. The *ring* algorithm
# needs messages between neighbours only.

# %%
import torch


def sum_of_ranks(comm):
    from hpcdl.collectives import ring_all_reduce

    x = torch.full((3,), float(comm.rank))
    ring_all_reduce(x, comm)
    return x.tolist()


cluster.run(sum_of_ranks)  # 0 + 1 + 2 + 3 = 6, everywhere

# %% [markdown]
# ## Train, and watch
#
# This is the whole training. `train_step` is forward, backward, one all-reduce of all gradients, step; `report` is called after every
# step with the numbers of this rank.

# %%
import inspect

from IPython.display import Code

from hpcdl.ddp.train import train

Code(inspect.getsource(train), language="python")

# %% [markdown]
# Now it runs on the four engines: LeNet-5 learns to read 1,438 real handwritten digits, and keeps 359 aside that it never trains on.
# `cluster.stream` is like `run`, but hands over what the ranks `publish` while they are at it.

# %%
from hpcdl.widgets.training import TrainingFigure

epochs = 15
training = cluster.stream(train, publish, epochs, timeout=120)
with TrainingFigure(epochs) as picture:
    for record in training:
        picture.add(record)

# %% [markdown]
# **What did you see?** Before you open the answer: why do the ranks' loss curves differ although all have the same weights? Why do
# the curves of speed move together?
#
# <details><summary>What we expect</summary>
#
# - Each rank measures the loss on its own images, a quarter of the batch, so the curves jitter around one another. The weights behind them
#   are the same.
# - An all-reduce ends for nobody before the last one has come: when one rank is late, all are. The speeds move together.
# - Four engines are not four times as fast as one here. A step takes a few milliseconds; with fewer cores than engines the ranks take turns, and
#   everyone waits for the last. When it does pay is what labs 07 and 08 will measure and predict.
# </details>

# %% [markdown]
# ## Did it learn, and are the replicas equal?
#
# Each rank returned its accuracy on the held-out images and a SHA-256 of all its weights. One different bit in one of the 61,706 weights
# would give another number.

# %%
for rank, trained in enumerate(training.results):
    print(f"rank {rank}: held-out accuracy {trained.accuracy:.1%}, weights {trained.fingerprint[:16]}…")

engines = len(training.results)
accuracy = training.results[0].accuracy
replicas_identical = len({trained.fingerprint for trained in training.results}) == 1
print(f"\nThe {engines} replicas are", "identical to the last bit." if replicas_identical else "DIFFERENT.")


# %% [markdown]
# ## When a rank fails
#
# With MPI, a classic mistake freezes everything: both ranks wait to receive, nobody sends. Here it is one error, within the time limit, and
# the engines are ready again. Run it:


# %%
def both_wait(comm):
    x = torch.zeros(3)
    if comm.rank < 2:
        comm.recv(x, source=1 - comm.rank)


try:
    cluster.run(both_wait, timeout=2)
except ClusterError as error:
    print(error)

# %%
cluster.run(hello)  # and on we go

# %% [markdown]
# ## The same code as a program
#
# The training above is the file `hpcdl/ddp/train.py`, and it is also a program. In a terminal (*File → New → Terminal*):
#
#     mpiexec -n 4 python -m hpcdl.ddp.train
#
# Here it is, started from the notebook with the launcher that belongs to this MPI:

# %%
import subprocess
import sys

from hpcdl.cluster import find_launcher

command = [find_launcher().path, "-n", "2", sys.executable, "-m", "hpcdl.ddp.train", "--epochs", "2"]
print(subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout)

# %% [markdown]
# ## Stop the engines
#
# They would also end with the kernel, but their memory is better given back now.

# %%
cluster.stop()

# %% [markdown]
# ## Further reading
#
# - Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training": what torch's own DDP adds to this plain
#   step, buckets and overlap.
# - Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour": what a global batch of 8,192 images needs.
# - Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations": the ring.
