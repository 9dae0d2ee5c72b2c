# %% [markdown]
# # Lab 11 · Nothing twice
# ## ZeRO, FSDP, recomputation and checkpoints of shards
#
# In lab 07 every machine held the whole model: the same weights, the same gradients, the same optimizer states, on four machines four times. Lab 10 cut the
# network. There is another way, and most large models are trained with it: the batch is cut, as in lab 07, and *of everything else each rank keeps its share
# alone*. What it needs of the others' shares it asks for, uses, and forgets.
#
# It is easy to get wrong in a way that nobody sees. A sharded optimizer that shards nothing trains as well as any; so does an FSDP that never frees a weight.
# So here the checks count: the bytes that a rank holds, the bytes that it sends, the seconds that it waits.
#
# **You will be able to**
# - say whether a training fits into its machines, and what each gigabyte that you save costs;
# - write ZeRO: an optimizer of which each rank does its share, with the messages of data parallelism and not one more;
# - write what FSDP does: weights that are gathered before a layer's use, the next one's while one is at work, and freed after it;
# - trade memory for a second forward pass, to the bit;
# - save a training so that it can be killed at any moment, and go on with another number of machines.
#
# **100 points, 7 exercises, about two hours.** You need lab 07's ring and a little autograd; lab 10 helps. MPI came with the installation. No GPU.
#
# | here | means |
# |---|---|
# | $p$, $r$ | ranks, one of them |
# | $\Psi$ | the number of parameters, and of bytes where it is said so (ZeRO's letter) |
# | $n$ | elements of a vector; rank $r$'s share of it is `x.tensor_split(p)[r]` |
# | $s, b, h, a, t$ | a transformer's sequence length, microbatch, hidden size, heads; ranks that share its layers (lab 10's tensor parallelism) |

# %%
import itertools

import torch
from torch import Tensor, nn

from autograder import check
from hpcdl.collectives import all_gather, reduce_scatter
from hpcdl.comm import simulate

torch.set_num_threads(1)

# %% [markdown]
# ## What a rank holds
#
# Mixed-precision training with Adam keeps 16 bytes for each parameter: the weight and its gradient in 16 bits, 2 bytes each, and the optimizer's 12: the weight
# again in float32, the momentum and the variance. **ZeRO** (Rajbhandari et al. 2020) divides them among the $p$ ranks of data parallelism, the largest first:
#
# | stage | each rank keeps a $p$-th of |
# |---|---|
# | 0 | nothing: plain data parallelism |
# | 1 | the optimizer's states |
# | 2 | and the gradients |
# | 3 | and the weights |
#
# The **activations** come on top: what the forward pass leaves for the backward pass. No stage of ZeRO divides them. One layer of a transformer keeps of a
# microbatch, in 16 bits (Korthikanti et al. 2022):
#
# | | bytes | $t$ ranks of tensor parallelism have each |
# |---|---|---|
# | around the normalizations and dropouts | $10\,sbh$ | all of it; a $t$-th if the sequence is cut there, too |
# | in the matrix products | $24\,sbh$ | a $t$-th |
# | the scores of attention | $5\,abs^2$ | a $t$-th |
#
# What is not kept is computed once more in the backward pass. **Selective** recomputation drops the scores, **full** recomputation all but the layer's input:
# $2\,sbh$, which is whole on every rank unless the sequence is cut.

# %% [markdown]
# {{exercise memory}}
#
# <details><summary>Hint 1: the stages</summary>
#
# In the order in which ZeRO divides them the three are `(12, 2, 2)`. The first `stage` of them are divided by p: slices do it, `(12, 2, 2)[:stage]` and
# `(12, 2, 2)[stage:]`.
# </details>
# <details><summary>Hint 2: the largest model</summary>
#
# Memory is proportional to the parameters. How much does one take?
# </details>
# <details><summary>Hint 3: activations</summary>
#
# Two factors: the scores are `5 * heads * batch * sequence**2`, or 0; what is around the normalizations is divided by `t if cut else 1`.
# </details>


# %%
def memory(parameters: float, p: int, stage: int) -> float:
    """Bytes of weights, gradients and optimizer states on each of p ranks, at ZeRO stage 0 to 3.

    >>> memory(1000, p=4, stage=1)
    7000.0
    """
    # BEGIN SOLUTION
    divided, whole = (12, 2, 2)[:stage], (12, 2, 2)[stage:]
    return parameters * (sum(whole) + sum(divided) / p)
    # END SOLUTION


def largest(nbytes: float, p: int, stage: int) -> float:
    """How many parameters fit into `nbytes` bytes on each of p ranks; activations left out.

    >>> largest(16e9, p=1, stage=3)
    1000000000.0
    """
    # BEGIN SOLUTION
    return nbytes / memory(1, p, stage)
    # END SOLUTION


def activations(
    sequence: int, batch: int, hidden: int, heads: int, recompute: str = "nothing", t: int = 1, cut: bool = False
) -> float:
    """Bytes that one layer keeps of a microbatch on each of t ranks; `cut`: their sequence is cut, too.

    recompute: "nothing", "selective" or "full".

    >>> activations(sequence=10, batch=1, hidden=8, heads=2)
    3720.0
    """
    # BEGIN SOLUTION
    tokens, parts = sequence * batch * hidden, t if cut else 1
    if recompute == "full":
        return 2 * tokens / parts
    scores = 5 * heads * batch * sequence**2 if recompute == "nothing" else 0
    return 10 * tokens / parts + (24 * tokens + scores) / t
    # END SOLUTION


# %%
check("sharding.memory")

# %% [markdown]
# ## The optimizer's share
#
# Data parallelism sums the gradients over the ranks by an all-reduce, and then each rank does the same update with the same numbers. Lab 07 had the ring
# all-reduce in two halves. Put the update *between* them:
#
#     g_0  g_1  g_2          reduce-scatter        each rank: the sum of its chunk, nothing else
#      │    │    │                                      │
#      └────┴────┘                                    update of this chunk of the weights: a p-th of the states
#                                                       │
#                              all-gather           all chunks of the new weights, on every rank
#
# The messages are the same ones, $2\frac{p-1}{p}\Psi$ bytes from each rank, and the work of the update is divided by $p$, too. That is ZeRO-1; if the gradients
# are let go as soon as they are summed, it is ZeRO-2.
#
# Parameters have shapes and shares have not: so all of them are put into one flat vector, which is cut without regard to where one ends. That suits every
# optimizer that works element by element. These are given:


# %%
def flat(tensors: list[Tensor]) -> Tensor:
    """All tensors in one new vector."""
    return torch.cat([x.detach().reshape(-1) for x in tensors])


def fill(tensors: list[Tensor], vector: Tensor) -> None:
    """Copy the parts of the vector back into the tensors."""
    for x, part in zip(tensors, vector.split([x.numel() for x in tensors]), strict=True):
        x.detach().copy_(part.view_as(x))


def share(vector: Tensor, comm) -> Tensor:
    """This rank's part of the vector, a view."""
    return vector.tensor_split(comm.size)[comm.rank]


def adamw(w: Tensor, g: Tensor, m: Tensor, v: Tensor, t: int, lr: float) -> None:
    """Step t = 1, 2, ... of AdamW, in place: w, its momentum m and variance v, from the gradient g."""
    m.lerp_(g, 1 - 0.9)
    v.lerp_(g * g, 1 - 0.999)
    w.mul_(1 - lr * 0.01)  # weight decay
    w.sub_(lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8))


# %% [markdown]
# {{exercise sharded_adam}}
#
# `reduce_scatter(x, comm, weight)` is the library's, the first half of lab 07's ring: it sums `weight * x` over the ranks and returns this rank's chunk of the
# sum, `share(x, comm)`, *a view of x*. `all_gather(x, comm)` is the second half: in place, it fills in all chunks from the ranks that own them.
#
# <details><summary>Hint 1: what to keep</summary>
#
# The momentum and the variance of this rank's share, `torch.zeros_like(share(flat(params), comm))`, and the number of steps. Beware of views: a view of a
# vector keeps the whole vector in memory.
# </details>
# <details><summary>Hint 2: the first half</summary>
#
# All gradients into one vector, then `param.grad = None` for each. All ranks' batches are equally large, so the mean over them is a sum with weight
# `1 / comm.size`.
# </details>
# <details><summary>Hint 3: the second half</summary>
#
# `w = flat(self.params)`; `share(w, comm)` is a view of it, so `adamw(share(w, comm), ...)` changes `w`. Then `all_gather(w, comm)`, and `fill` the parameters.
# </details>


# %%
class ShardedAdam:
    """AdamW on the mean of all ranks' gradients; each rank keeps momentum and variance of its share alone.

    params: the same weights on all ranks, of one dtype. Rank r's share is that of `flat(params)`.
    """

    def __init__(self, params: list[Tensor], comm, lr: float = 1e-3):
        # BEGIN SOLUTION
        self.params, self.comm, self.lr, self.t = list(params), comm, lr, 0
        self.m, self.v = (torch.zeros_like(share(flat(self.params), comm)) for _ in "mv")
        # END SOLUTION

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights on every rank from the ranks' `param.grad`, and leave no gradient behind."""
        # BEGIN SOLUTION
        self.t += 1
        gradients = flat([param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        g = reduce_scatter(gradients, self.comm, 1 / self.comm.size)
        w = flat(self.params)
        adamw(share(w, self.comm), g, self.m, self.v, self.t, self.lr)
        all_gather(w, self.comm)
        fill(self.params, w)
        # END SOLUTION


# %%
check("sharding.sharded_adam")

# %% [markdown]
# ## The weights' share
#
# The last step: no rank has all of the weights, either. A layer's weights are **gathered** just before its forward pass and **freed** after it; gathered again
# before its backward pass and freed; and its gradients leave by a reduce-scatter, after which each rank has its share of their mean. That is ZeRO-3, and what
# PyTorch calls FSDP (fully sharded data parallelism, Zhao et al. 2023).
#
#     rank r      gather 0   F0   free 0, gather 1   F1   free 1, ...
#     with the next one on its way:
#                 gather 0   F0            F1            F2   ...              compute
#                            gather 1      gather 2      gather 3              messages
#
# Three times $\frac{p-1}{p}\Psi$ bytes leave each rank in a step, half as much again as in data parallelism; and if the next layer's weights travel while this
# one computes, nobody waits for them. At most two layers are whole at a time.
#
# A layer here knows no weights: it is told them, as one flat vector, in each pass. A class of such layers, with everything that your code needs to know:


# %%
class Layer:
    """y = tanh(x W^T) with weights (outputs x inputs) that come as a flat vector; it remembers what backward needs."""

    def __init__(self, inputs: int, outputs: int):
        self.shape, self.kept = (outputs, inputs), []

    def forward(self, w: Tensor, x: Tensor) -> Tensor:
        """y (n, outputs) of x (n, inputs)."""
        y = torch.tanh(x @ w.view(self.shape).T)
        self.kept.append((x, y))
        return y

    def backward(self, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of x, and of w as a flat vector, for this rank's samples. The last forward pass comes first."""
        x, y = self.kept.pop()
        ds = dy * (1 - y * y)
        return ds @ w.view(self.shape), (ds.T @ x).flatten()


# %% [markdown]
# {{exercise sharded}}
#
# `order` says which layers a pass goes through. A number may stand in it twice: then one layer is used in two places (its weights are **tied**), and its
# gradient is the sum of both. Gather it for each use.
#
# <details><summary>Hint 1: begin to gather</summary>
#
# `whole = self.shares[i].new_empty(self.sizes[i])`; `parts = whole.tensor_split(comm.size)` are views of it, one for each rank. Copy your share into your part;
# to each other rank `comm.isend` your share, and `comm.irecv` its part from it. Return the vector and the requests. Nobody waits yet.
# </details>
# <details><summary>Hint 2: a pass</summary>
#
# `coming = self.begin(order[0])` before the loop. In it: wait for the requests of `coming`, begin the next one if there is one, and only then compute. Use the
# same names in each turn: a vector is freed when no name stands for it any more.
# </details>
# <details><summary>Hint 3: backward</summary>
#
# The same over `order[::-1]`: the next layer is the one *before*. The layer's `dw` goes into `reduce_scatter(dw, comm, 1 / comm.size)`; *add* what comes to
# `self.grads[i]`, which is 0 when the pass begins.
# </details>


# %%
class Sharded:
    """Layers of whose weights each rank keeps its share alone: `shares[i]`, of `weights[i]` as `share` has it.

    weights[i]: those of layers[i], flat and the same on all ranks.
    """

    def __init__(self, layers: list, weights: list[Tensor], comm):
        # BEGIN SOLUTION
        self.layers, self.comm = layers, comm
        self.sizes, self.shares = [len(w) for w in weights], [share(w, comm).clone() for w in weights]
        # END SOLUTION

    def begin(self, i: int) -> tuple[Tensor, list]:
        """Begin to gather the weights of layer i: the vector in which they will be, and the requests to wait for."""
        # BEGIN SOLUTION
        whole, rank = self.shares[i].new_empty(self.sizes[i]), self.comm.rank
        parts, others = whole.tensor_split(self.comm.size), [r for r in range(self.comm.size) if r != rank]
        parts[rank].copy_(self.shares[i])
        sent = [self.comm.isend(self.shares[i], r, tag=i) for r in others]
        return whole, sent + [self.comm.irecv(parts[r], r, tag=i) for r in others]
        # END SOLUTION

    def forward(self, x: Tensor, order: list[int]) -> Tensor:
        """The output of this rank's samples x through layers[order[0]], layers[order[1]], ..."""
        # BEGIN SOLUTION
        coming = self.begin(order[0])
        for now, after in itertools.zip_longest(order, order[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            x = self.layers[now].forward(whole, x)
        return x
        # END SOLUTION

    def backward(self, dy: Tensor, order: list[int]) -> Tensor:
        """The gradient of x; leaves in `grads[i]` this rank's share of the ranks' mean gradient of weights[i]."""
        # BEGIN SOLUTION
        self.grads = [torch.zeros_like(mine) for mine in self.shares]
        back = order[::-1]
        coming = self.begin(back[0])
        for now, after in itertools.zip_longest(back, back[1:]):
            whole, requests = coming
            for request in requests:
                request.wait()
            coming = self.begin(after) if after is not None else None
            dy, dw = self.layers[now].backward(whole, dy)
            self.grads[now] += reduce_scatter(dw, self.comm, 1 / self.comm.size)
        return dy
        # END SOLUTION


# %%
check("sharding.sharded")

# %% [markdown]
# ## One norm
#
# Large models are trained with their gradient **clipped**: if its norm, over all parameters, is above a limit, all of it is scaled down to that. When each rank
# has a share of the gradient, no rank knows the norm. Each knows the sum of its squares.

# %% [markdown]
# {{exercise clip}}
#
# All ranks have to return the same number: where it is infinite or no number at all, every rank leaves out the step, or none does. A rank may own nothing.
#
# <details><summary>Hint</summary>
#
# One number travels: `squares = torch.zeros(1, dtype=torch.float64)`, the sum of this rank's squares in it, `comm.all_reduce(squares)`. Then every rank scales
# what it has, in place: `mine.mul_(...)`.
# </details>


# %%
def clip(shares: list[Tensor], comm, max_norm: float) -> float:
    """Scale all ranks' shares, in place, to a norm of at most `max_norm`: by max_norm / norm if the norm is larger.

    shares: this rank's flat pieces of the gradient; there may be none. Returns the norm before, the same on all ranks.
    """
    # BEGIN SOLUTION
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm
    # END SOLUTION


# %%
check("sharding.clip")
