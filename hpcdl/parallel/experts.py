"""Expert parallelism: each token goes through a few of many layers on different ranks, by all-to-all there and back.

The gate after Shazeer et al. 2017, "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer";
capacity and all-to-all after Lepikhin et al. 2021, "GShard: scaling giant models with conditional computation and
automatic sharding"; the balance loss after Fedus, Zoph and Shazeer 2022, "Switch transformers".
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

from hpcdl.collectives import all_to_all
from hpcdl.comm import Communicator
from hpcdl.ddp import apart
from hpcdl.numerics.exact import product
from hpcdl.parallel.shares import shares
from hpcdl.parallel.tensor.conjugate import reduce
from hpcdl.parallel.tensor.dense import SplitLayer
from hpcdl.sharding.steps import know_apart


class Routing(NamedTuple):
    """Where a rank's tokens went: `chosen` (n, k) experts, `kept` (n, k) whether they had room, and `balance`.

    balance = E sum_e f_e P_e over the tokens of all ranks, where f_e is the share of choices that fell on expert e and
    P_e the gate's mean probability of it: 1 at best, E at worst.
    """

    chosen: torch.Tensor
    kept: torch.Tensor
    balance: torch.Tensor

    @property
    def dropped(self) -> int:
        """Return the number of choices without room."""
        return int((~self.kept).sum())


class Experts(SplitLayer):
    """y = sum over a token's k experts of probability times expert(x): (n, hidden) to (n, hidden), and its `Routing`.

    `gate`, hidden to E logits, is the same on every rank, and `experts` are this rank's share: `shares(E, p)`, in the
    order of the ranks. Each expert takes at most `capacity(n)` of a rank's n tokens, first choices before second ones,
    earlier tokens before later ones. A token that finds no room comes back unchanged. With `renormalize` a token's
    k probabilities are divided by their sum, so that they add up to 1 (Jiang et al. 2024, "Mixtral of experts").

    Every rank calls it, with any number of tokens. Each way a rank sends a row for each kept choice with a remote
    expert, and before that the numbers per expert, in 8 E bytes. The experts' gradients are complete. The gate's
    gradient covers this rank's tokens, and `balance` if all ranks add it to their losses; sum it over the ranks:
    `sum_gradients(layer.gate.parameters(), comm)`. Raises ValueError for another number of experts, and for a k that is
    not 1 to E, and for a room that is not above 0 (infinity drops nothing).
    """

    def __init__(
        self,
        gate: nn.Linear,
        experts: Iterable[nn.Module],
        comm: Communicator,
        k: int = 1,
        room: float = 1.25,
        renormalize: bool = False,
    ):
        super().__init__()
        self.gate, self.experts, self.comm, self.k, self.room = gate, nn.ModuleList(experts), comm, k, room
        self.renormalize = renormalize
        mine = shares(gate.out_features, comm.size)[comm.rank]
        if len(self.experts) != mine:
            raise ValueError(
                f"rank {comm.rank}: there are {len(self.experts)} experts; of {gate.out_features} its share is {mine}"
            )
        if not 1 <= k <= gate.out_features:
            raise ValueError(f"k is {k}; a token goes through 1 to {gate.out_features} experts")
        if not room > 0:
            raise ValueError(f"room is {room!r}; it is above 0, such as 1.25, and 1 is an even share")

    def capacity(self, n: int) -> int:
        """ceil(room k n / E): so many of a rank's n tokens find room with each expert; room 1 is an even share."""
        if math.isinf(self.room):
            return n  # a token's k experts differ
        return math.ceil(product(self.room, self.k, n, over=self.gate.out_features))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Routing]:
        if x.dim() != 2 or x.shape[1] != self.gate.in_features:
            raise ValueError(
                f"rank {self.comm.rank}: x has shape {tuple(x.shape)}; it is (tokens, {self.gate.in_features}), and "
                "x.flatten(0, -2) makes one row for each token of a batch"
            )
        if torch.is_grad_enabled() and not x.requires_grad:
            x = x.detach().requires_grad_()  # all ranks take part in the backward pass, even without an expert
        if self.comm.size > 1:
            for param in self.experts.parameters():
                if param.requires_grad and not apart.is_known(param, apart.OfStage):
                    know_apart(param, self.comm, apart.OfStage)
                    apart.listen(param)
        probabilities = self.gate(x).softmax(-1)
        weights, chosen = probabilities.topk(self.k)
        if self.renormalize:
            weights = weights / weights.sum(-1, keepdim=True)
        kept = _first(chosen, self.gate.out_features, self.capacity(len(x)))
        routing = Routing(chosen, kept, self._balance(probabilities, chosen))
        token, choice = kept.nonzero(as_tuple=True)
        by_expert = chosen[token, choice].argsort(stable=True)
        token, choice = token[by_expert], choice[by_expert]
        counts = torch.bincount(chosen[token, choice], minlength=self.gate.out_features)
        rows = self._through_experts(x[token], counts)
        y = torch.zeros_like(x).index_add(0, token, (rows * weights[token, choice, None]).to(x.dtype))
        return torch.where(kept.any(1)[:, None], y, x), routing

    def _through_experts(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Send rows sorted by expert, `counts` for each, through the experts and back."""
        p, mine = self.comm.size, len(self.experts)
        sizes = shares(len(counts), p)
        arriving = all_to_all(counts, self.comm, sizes, [mine] * p).view(p, mine)  # from each rank for each expert
        to, come = [int(part.sum()) for part in counts.split(sizes)], arriving.sum(1).tolist()
        came = _Exchange.apply(x, self.comm, to, come)
        groups = came.split(arriving.flatten().tolist())
        done: list[tuple[torch.Tensor, ...]] = [  # under autocast experts have another dtype, and some ranks no experts
            expert(torch.cat(groups[e::mine])).to(x.dtype).split(arriving[:, e].tolist())
            for e, expert in enumerate(self.experts)
        ]
        back = [done[e][source] for source in range(p) for e in range(mine)]
        return _Exchange.apply(torch.cat(back) if back else came, self.comm, come, to)

    def _balance(self, probabilities: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Run one all-reduce of 2 E + 1 numbers: choices and gate probabilities per expert, and tokens.

        They are float64 whatever the gate's dtype: bfloat16 counts to 256, and float32 to 2^24.
        """
        experts = probabilities.shape[1]
        fell = torch.bincount(chosen.flatten(), minlength=experts).double()
        tokens = fell.new_tensor([len(probabilities)])
        totals = reduce(torch.cat([fell, probabilities.double().sum(0), tokens]), self.comm)
        fell, given, tokens = totals.split([experts, experts, 1])
        tokens = tokens.clamp(min=1)
        return (experts * (fell / (self.k * tokens) * (given / tokens)).sum()).to(probabilities.dtype)


def _first(chosen: torch.Tensor, experts: int, capacity: int) -> torch.Tensor:
    """Return whether each choice, (n, k), is among its expert's first `capacity`: first choices first, in order."""
    claims = torch.nn.functional.one_hot(chosen.T.flatten(), experts)
    place = (claims.cumsum(0) * claims).sum(1)
    return (place <= capacity).view(chosen.T.shape).T


class _Exchange(torch.autograd.Function):
    """Sends rows to their destination ranks, and gradients back."""

    @staticmethod
    def forward(ctx, x, comm, counts, out_counts):
        ctx.comm, ctx.counts, ctx.out_counts = comm, counts, out_counts
        return all_to_all(x.contiguous(), comm, counts, out_counts)

    @staticmethod
    def backward(ctx, dy):
        return _Exchange.apply(dy, ctx.comm, ctx.out_counts, ctx.counts), None, None, None
