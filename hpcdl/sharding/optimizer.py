"""ZeRO stages 1 and 2: every rank has all weights, and the optimizer states only of its own shard."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from hpcdl.comm import Background, Communicator, Foreground
from hpcdl.ddp.alike import ReplicaComparison
from hpcdl.ddp.backward_passes import OF_INPUTS, Losses, look_for_batch_norm, watch
from hpcdl.ddp.bucketed import make_buckets
from hpcdl.ddp.buffers import broadcast_state
from hpcdl.ddp.counting import COUNTS, count_votes, require_one_mean
from hpcdl.ddp.decisions import Decisions, split_vote
from hpcdl.sharding import whole_state
from hpcdl.sharding.adding import Adding, SamePasses
from hpcdl.sharding.ballot import Ballot
from hpcdl.sharding.bucket import ShardBucket
from hpcdl.sharding.changes import hooked_on_ranks, require_same_changes, shape_and_hash, uses, votes_on
from hpcdl.sharding.clipping import clip_shards, norms_of_parts
from hpcdl.sharding.elementwise import require_elementwise, require_steps_only, stepped
from hpcdl.sharding.flat import Shard
from hpcdl.sharding.groups import as_groups, as_list, numbered, option_votes, require_same_options, trainable
from hpcdl.sharding.offload import Offloaded

Make = Callable[[list], torch.optim.Optimizer | Offloaded]


class ShardedOptimizer(Adding, torch.optim.Optimizer):
    """Step an elementwise optimizer on the mean gradient of all ranks; each rank updates its shard.

        optimizer = ShardedOptimizer(model.parameters(), comm, lambda shards: torch.optim.AdamW(shards, lr=1e-3))
        optimizer.count(len(x))            # before backward; without it all ranks' batches count equally
        loss_fn(model(x), y).backward()
        optimizer.clip(1.0)                # optional: by the norm of the whole gradient, which it returns
        optimizer.step()

    At the start every rank gets rank 0's weights. `step` computes sum_r (n_r / N) g_r of the ranks' gradients by a
    reduce-scatter, lets the optimizer from `make` update this rank's shard, and all-gathers the new weights. For Psi
    bytes of weights each rank sends 2 Psi (p-1)/p bytes, like an all-reduce, plus a few numbers to agree on N. Each
    element's states are on one rank. At `stage` 1 gradients stay until the step, so several backward passes accumulate.
    At stage 2 they are sent during backward in buckets of up to `bucket_mb` (2^20 bytes), and freed: afterwards this
    rank has only its shard of the sum, to which more passes add in `adding()`. After a step there are no gradients.

    `params` are parameters, (name, parameter) pairs, or groups as for torch.optim, which `make` receives with shards
    instead of parameters. It is a torch optimizer: `param_groups` (of shards), schedulers, closures, `add_param_group`;
    `state_dict` and `load_state_dict` use the format of the optimizer on one machine. `hpcdl.training`'s LARS and LAMB
    take norms over all ranks, for 16 more bytes per parameter. `optimizer.optimizer` is the object from `make`; it may
    be `Offloaded`. A parameter that no rank used, or that you freeze later, does not change; if you unfreeze a
    parameter, it is trained from the next step. A rank without samples calls `count(0)` and `step()`.

    What a forward pass draws or decides for its whole batch, each rank draws or decides for its own samples, as under
    `hpcdl.ddp.DistributedDataParallel`: the second time that ranks take different ways, it raises RuntimeError.

    Raises ValueError if ranks have different parameters, if none is trainable, or if the optimizer does not work
    elementwise: `make` is tried on small parameters, whole and split (Rajbhandari et al. 2020, "ZeRO: memory
    optimizations toward training trillion parameter models").
    """

    def __init__(self, params: Iterable, comm: Communicator, make: Make, stage: int = 1, bucket_mb: float = 4.0):
        if stage not in (1, 2):
            raise ValueError(f"stage is {stage!r}; it is 1 or 2, and stage 3 is FullyShardedDataParallel")
        if not bucket_mb > 0:
            raise ValueError(f"bucket_mb is {bucket_mb!r}; a bucket holds more than 0 MB, such as 4")
        self.comm, self.stage, self._cap = comm, stage, bucket_mb * 2**20
        groups, grouped = as_groups(params)
        self.groups = [group["params"] for group in groups]  # whole parameters
        options = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        trained = trainable([param for group in self.groups for param in group], comm)
        require_elementwise(make, options if grouped else [{}], trained[0].device)
        self.buckets: list[ShardBucket] = []
        self._shard: dict[torch.Tensor, nn.Parameter] = {}  # for each parameter in a bucket, this rank's part
        self._frozen: list[torch.Tensor] = []
        self._of_frozen: dict[torch.Tensor, dict[str, Any]] = {}  # whole states that were loaded
        self._handles: list[RemovableHandle] = []
        self._add([param for group in self.groups for param in group], trained)
        shards = [
            {**given, "params": self._shards_of(group)} for given, group in zip(options, self.groups, strict=True)
        ]
        if not any(group["params"] for group in shards):
            shards[0]["params"] = [nn.Parameter(torch.empty(0))]  # a rank may own nothing
        self.optimizer = make(shards if grouped else shards[0]["params"])
        require_steps_only(self.optimizer, as_list(group["params"] for group in shards))
        self.background = SamePasses(comm.background()) if stage == 2 else Foreground(comm)
        self._samples, self._total = 1.0, float(comm.size)
        self._counts: list[int] = []  # in this step, by backward pass
        self._versions: dict[torch.Tensor, int] = {}  # of the weights when the samples were counted
        self._launched, self._reduced, self._losses, self._decisions = 0, False, Losses(), Decisions()
        watch()
        look_for_batch_norm(comm.size)
        self.__setstate__({"defaults": dict(getattr(self._inner, "defaults", {}))})  # torch's: a step's hooks
        weakref.finalize(self, _end, self._handles, self.background)

    @property
    def _inner(self) -> Any:
        return stepped(self.optimizer)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the groups of the optimizer from `make`, with this rank's shards; you may change options there."""
        return self._inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Return this rank's states, by shard."""
        return self.optimizer.state

    def count(self, samples: int) -> None:
        """Set how many samples this rank has, 0 or more, before each backward pass; at stage 1 passes add up."""
        if self._launched:
            raise RuntimeError("count: gradients are on their way; call it before backward, add up several at stage=1")
        if samples < 0:
            raise ValueError(f"count: samples is {samples!r}; it is this rank's number of samples, 0 or more")
        is_another_pass = any(bucket.begun for bucket in self.buckets)
        self._counts = [*self._counts, samples] if is_another_pass else [samples]
        self._samples = sum(self._counts) / (len(self._counts) if self.stage == 2 else 1)  # it sends before the last
        self._decisions.samples = samples
        self._losses.begin(samples)
        self._versions = {param: param._version for param in self._shard}

    def reduce(self) -> None:
        """Compute this rank's shard of the mean gradient; `clip` and `step` do it unless it is done already."""
        if self._reduced:
            return
        self._thaw()
        for bucket in self.buckets[self._launched :]:
            self._launch(bucket)
        used = [present for bucket in self.buckets for present in bucket.present]
        params = [param for bucket in self.buckets for param in bucket.params]
        changed = [param._version != self._versions.get(param, param._version) for param in params]
        votes = votes_on(params, used, changed, self._samples, self._losses)
        ballot = Ballot(self._samples, votes, self.comm, self._alike())
        total, used = ballot.count(self.background)
        ballot.require_none_left_out([tuple(param.shape) for param in params])
        require_same_changes(ballot, [partial(shape_and_hash, param) for param in params], self.comm)
        require_one_mean(ballot.alike[:COUNTS], self.comm, self._losses if any(used) else None)
        require_same_options(ballot.alike[COUNTS : COUNTS + 3])
        count, decided = split_vote(ballot.alike[COUNTS + 3])
        if self._decisions.require(ballot.alike[0], decided, uses(ballot.votes), self.comm):
            self._decisions.watch(params)
        self._replicas.require([count, *ballot.alike[COUNTS + 4 :]], self.comm)
        for bucket in self.buckets:
            bucket.require_kept()
        hooks = hooked_on_ranks(ballot.votes)
        for bucket in self.buckets:
            bucket.release(self._total / total, [used.pop(0) for _ in bucket.params])
            bucket.run_hooks([hooks.pop(0) for _ in bucket.params], self.comm)
        self._total, self._reduced = total, True

    def clip(self, max_norm: float, *others: Communicator) -> float:
        """Scale the mean gradient so that its norm over all ranks is at most `max_norm`; return the norm before.

        `others` are communicators over which the network is split, too, such as mesh.tensor and mesh.pipeline.
        """
        self.reduce()
        pairs = (pair for bucket in self.buckets for pair in zip(bucket.params, bucket.shards, strict=True))
        return clip_shards(pairs, (self.comm, *others), max_norm)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all weights on every rank; every rank calls it. Return the result of `closure`, if any."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        self.reduce()
        if hasattr(self._inner, "step_with"):
            self._inner.step_with(self._measure)
        else:
            self.optimizer.step()
        self.gather()
        self._clear()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop this rank's gradients and the sums. To skip a step after `clip`, call it on all ranks.

        With `set_to_none=False` parameters that had a gradient have a zero one in the next step, as on one machine.
        """
        if self._launched and not self._reduced:
            raise RuntimeError(
                "zero_grad: gradients are on their way, and the other ranks wait for the rest; call step(), or clip() "
                f"and then zero_grad(), on every rank; {OF_INPUTS}"
            )
        for bucket in self.buckets:
            bucket.forget(set_to_none)
        self._clear()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train more parameters with separate options; every rank calls it, between steps."""
        if self._launched or self._reduced:
            raise RuntimeError("add_param_group: gradients are on their way; call it after step()")
        (group,), _ = as_groups([param_group], self.groups)
        self._add(group["params"], trainable(group["params"], self.comm))
        self.groups.append(group["params"])
        self._inner.add_param_group({**group, "params": self._shards_of(group["params"])})

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer as on one machine, whole on every rank; every rank calls it.

        So it can be loaded on any number of ranks, by torch's optimizer too. `save(path, step, with_states(...), comm)`
        writes each rank's share instead.
        """
        parts = {
            i: (self._part(param), dict(self.state[self._shard[param]]))
            for i, param in enumerate(as_list(self.groups))
            if param in self._shard and self._shard[param].numel() and self._shard[param] in self.state
        }
        groups = numbered(self.param_groups, self.groups)
        kept = {i: deepcopy(self._of_frozen[p]) for i, p in enumerate(as_list(self.groups)) if p in self._of_frozen}
        return {"state": whole_state.gathered(parts, self.comm) | kept, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict` of any number of ranks or of torch's optimizer; it sends nothing."""
        saved = state_dict["param_groups"]
        whole_state.require_groups(saved, [len(group) for group in self.groups])
        numbers = [number for group in saved for number in group["params"]]
        for number, param in zip(numbers, as_list(self.groups), strict=True):
            self._load_state(param, state_dict["state"].get(number))
        for inner, group in zip(self.param_groups, saved, strict=True):
            inner.update({key: value for key, value in group.items() if key not in ("params", "param_names")})

    def _load_state(self, param: torch.Tensor, state: dict[str, Any] | None) -> None:
        """Take this rank's part of a parameter's `state`, or keep it until a frozen parameter is unfrozen."""
        self._of_frozen.pop(param, None)
        if param not in self._shard and state:
            self._of_frozen[param] = deepcopy(state)
        elif param in self._shard and self._shard[param].numel():
            if self._shard[param] in self.state:
                del self.state[self._shard[param]]
            if state:
                self.state[self._shard[param]] = whole_state.cut(state, self._part(param))

    def shards(self) -> dict[str, Shard]:
        """Return this rank's part of each trainable parameter, named "0", "1", ... in the given order.

        After `Checkpoint.fill` of these, `gather` fetches the other ranks' weights.
        """
        return {str(i): self._part(param) for i, param in enumerate(self._shard)}

    def gather(self) -> None:
        """Give every rank all weights, each from the rank that owns it; every rank calls it."""
        for bucket in self.buckets:
            bucket.layout.all_gather(bucket.weights, self.comm)

    # -- parameters --------------------------------------------------------------------------------------------------

    def _add(self, params: Sequence[torch.Tensor], trained: list[nn.Parameter]) -> None:
        """Give `params` rank 0's values, and put the `trained` ones into buckets."""
        shards: dict[torch.Tensor, nn.Parameter] = {}
        for group in make_buckets(trained, self._cap):
            first = self.buckets[-1].layout.after if self.buckets else 0
            bucket = ShardBucket(group, self.comm, first, self.stage)
            self.buckets.append(bucket)
            shards |= zip(bucket.params, bucket.shards, strict=True)
            self._listen(bucket)
        self._shard |= {param: shards[param] for param in trained}
        self._replicas = ReplicaComparison([bucket.weights for bucket in self.buckets])
        for frozen in (param for param in params if not param.requires_grad):
            broadcast_state(frozen.detach(), self.comm)
            self._frozen.append(frozen)

    def _thaw(self) -> None:
        """Add the parameters that were frozen and now require a gradient, the same on every rank."""
        thawed: Any = [param for param in self._frozen if param.requires_grad]
        if not thawed:
            return
        gradients = [param.grad for param in thawed]
        self._frozen = [param for param in self._frozen if not param.requires_grad]
        self._add((), thawed)
        for param, gradient in zip(thawed, gradients, strict=True):
            param.grad = gradient
            if self._shard[param].numel():
                number = next(i for i, group in enumerate(self.groups) if any(param is each for each in group))
                self.param_groups[number]["params"].append(self._shard[param])
            self._load_state(param, self._of_frozen.get(param))

    def _alike(self) -> list[float]:
        """Return this rank's votes on what must be the same on all ranks."""
        options = option_votes(self.param_groups)
        counts = count_votes(self._counts, self._samples, self._losses)
        count, *others = self._replicas.votes(self.comm)
        count += self._decisions.vote(self._samples, self._decisions.since_begin())
        return [*counts, *options, count, *others]

    def _shards_of(self, params: Iterable[torch.Tensor]) -> list[nn.Parameter]:
        """Return this rank's nonempty parts of the trained parameters."""
        return [self._shard[param] for param in params if param in self._shard and self._shard[param].numel()]

    def _measure(self, directions: dict[torch.Tensor, torch.Tensor]) -> dict[torch.Tensor, tuple]:
        """Return the norms of whole parameters, and of their directions."""
        return norms_of_parts([shard for bucket in self.buckets for shard in bucket.shards], directions, self.comm)


def _end(handles: list[RemovableHandle], background: Background) -> None:
    for handle in handles:
        handle.remove()
    background.close()
