"""ZeRO stage 3: weights are whole only while a layer runs, and every rank keeps its shard of everything."""

import weakref
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from hpcdl.comm import Communicator, Foreground
from hpcdl.ddp.agreement import earlier_wrappers, outline, require_same
from hpcdl.ddp.backward_passes import look_for_batch_norm
from hpcdl.ddp.buffers import BufferBroadcast, broadcast_state
from hpcdl.ddp.counting import COUNTS, count_samples, count_votes, guessed_lengths, require_countable, require_one_mean
from hpcdl.ddp.left_out import with_left_out
from hpcdl.ddp.refusals import require_supported
from hpcdl.sharding.ballot import Ballot
from hpcdl.sharding.changes import require_same_changes, with_changes
from hpcdl.sharding.clipping import clip_shards
from hpcdl.sharding.cutting import Layers, cut
from hpcdl.sharding.flat import Shard
from hpcdl.sharding.gathering import Gathering, require_same_order
from hpcdl.sharding.intact import Intact
from hpcdl.sharding.passes import Passes
from hpcdl.sharding.pieces import IN_TRANSFORMS
from hpcdl.sharding.steps import stepped_with
from hpcdl.sharding.whole import load_whole, persistent_buffers, whole_state


class FullyShardedDataParallel(nn.Module):
    """Wrap `module` so that each rank of `comm` keeps only its shard of parameters, gradients and optimizer states.

        model = FullyShardedDataParallel(model, comm)
        optimizer = torch.optim.AdamW(model.parameters())      # after wrapping: of this rank's pieces
        loss_fn(model(x), y).backward()                        # x: this rank's part of the batch
        model.synchronize()                                    # now piece.grad = sum_r (n_r / N) g_r
        model.clip(1.0)
        optimizer.step(), optimizer.zero_grad()

    A layer's parameters are gathered before its forward and before its backward pass and freed after each, and its
    gradients are reduce-scattered: 3 Psi (p-1)/p bytes per rank and step for Psi bytes of trainable weights, 2 Psi
    (p-1)/p for frozen ones, plus a few numbers to agree on N. With `ahead` the next layer is gathered while one runs,
    from the second step on, so at most two layers are whole at a time, plus the modules around them. That takes a
    thread: if the ranks have no spare core for it, `ahead=False` is faster.

    A layer is a module of the types `layers` with everything inside it. So are torch's modules that use the parameters
    of others (`hpcdl.sharding.cutting.WHOLE`). Otherwise each module with its own parameters is a layer. If another
    module uses a parameter during the forward pass, it is gathered then and stays whole until `synchronize()`; to save
    that memory, name a module that contains both in `layers`; name there, too, a module that calls only some of those
    inside it, and others on another rank. If you freeze or unfreeze parameters after wrapping, that
    takes effect in the next forward pass. With `dtype`, such as bfloat16, weights, gradients and the inputs of layers
    have that type in messages and in layers; the pieces, their gradients, the optimizer and batch norms keep their
    types.

    At the start every rank gets rank 0's weights and buffers. The loss is a mean over n_r samples, counted by
    `samples(*inputs)` as in `hpcdl.ddp.DistributedDataParallel`. All ranks use the same layers in the same order; a
    rank without samples calls the model with an empty batch. A parameter that no rank used has no gradient. Several
    rounds of forward, backward and `synchronize` before a step accumulate; so do backward passes in `no_sync()`, whose
    whole gradients this rank keeps. A second backward pass before `synchronize()` is an error. The optimizer must work
    elementwise.

    `state_dict()` has the module's own names and shapes; every rank calls it. `shards()` is this rank's part.

    Raises ValueError if models differ between ranks, if n_r would be a guess, and for layers that it cannot train
    (sparse gradients, `max_norm`, lazy parameters) (Rajbhandari et al. 2020, "ZeRO"; Zhao et al. 2023, "PyTorch FSDP:
    experiences on scaling fully sharded data parallel").
    """

    def __init__(
        self,
        module: nn.Module,
        comm: Communicator,
        layers: Layers = (),
        ahead: bool = True,
        dtype: torch.dtype | None = None,
        samples: Callable[..., int] | None = None,
    ):
        super().__init__()
        self.module, self.comm, self.dtype, self.samples = module, comm, dtype, samples
        require_supported(module)
        if any(isinstance(layer, torch.jit.ScriptModule) for layer in module.modules()):
            raise ValueError(
                "the module is compiled by TorchScript, which takes neither hooks nor other parameters; wrap the "
                "module that was scripted or traced, or use DistributedDataParallel"
            )
        require_countable(module, samples)
        require_same(
            "another model",
            outline(module) + earlier_wrappers(comm),
            comm,
            "build the same model on every rank, its weights may differ",
        )
        for buffer in module.buffers():
            broadcast_state(buffer, comm)
        self.units, needs = cut(module, comm, layers, dtype)
        if not any(unit.trained for unit in self.units):
            raise ValueError(
                f"{type(module).__name__} has no parameter that requires a gradient, so there is nothing to reduce; "
                "use the module as it is"
            )
        self._gathering = Gathering(self.units, comm.background() if ahead else Foreground(comm), ahead)
        self._buffers_of_rank_0 = BufferBroadcast(module)
        self._passes = Passes(self.units, self._gathering, dtype, float(comm.size))
        self._passes.listen(needs)
        look_for_batch_norm(comm.size)
        self._intact = Intact(module, self.units)
        weakref.finalize(self, self._gathering.background.close)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's forward pass and count this rank's samples."""
        counted = None
        if torch.is_grad_enabled() and any(unit.trained for unit in self.units):
            if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
                raise RuntimeError(IN_TRANSFORMS)
            counted = count_samples(self.samples, args, kwargs), guessed_lengths(self.samples, args, kwargs)
        with self._passes.forward(self._intact, counted):
            return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        """Accumulate whole gradients on this rank only; the first backward outside the block sends the sum.

        Divide each of k losses by k, as on one machine; a rank's k batches must have one length.
        """
        self._passes.syncing = False
        try:
            yield
        finally:
            self._passes.syncing = True

    def synchronize(self) -> None:
        """Set each piece's gradient to its part of the mean over the global batch, and copy rank 0's buffers.

        Raises ValueError when no rank has a sample.
        """
        passes = self._passes
        trained = passes.reduce_rest()
        self._gathering.later(self._buffers_of_rank_0.run)
        self._gathering.end()
        changes = [change for unit in trained for change in unit.changes]
        has_grad = [has for unit in trained for has in unit.has_grad]
        left_out = not (passes.losses.had_pass or any(has_grad))
        frozen = [each for unit in trained for each in unit.frozen]
        ballots = with_left_out(with_changes(has_grad, map(bool, changes)), frozen, passes.samples, left_out)
        options = stepped_with(shard for unit in self.units for shard in unit.shards)
        alike = count_votes(passes.lengths, passes.samples, passes.losses) + self._gathering.order_votes(options)
        ballot = Ballot(passes.samples, ballots, self.comm, alike)
        total, used = ballot.count(self._gathering.background)
        ballot.require_none_left_out([path for unit in trained for path in unit.paths])
        require_same_changes(ballot, [partial(str, change) for change in changes], self.comm)
        require_one_mean(ballot.alike[:COUNTS], self.comm, passes.losses if any(used) else None)
        require_same_order(ballot.alike[COUNTS:], options, self.comm)
        if used and not any(used):
            raise RuntimeError(
                "no parameter has got a gradient on any rank; call backward() on the loss: neither "
                "backward(inputs=...) nor torch.autograd.grad reach parameters that are in pieces"
            )
        for unit in trained:
            unit.release(passes.total / total, [used.pop(0) for _ in unit.params])
        passes.end_step(total)

    def clip(self, max_norm: float, *others: Communicator) -> float:
        """Scale the gradients so that their norm over all ranks is at most `max_norm`; return the norm before.

        `others` are communicators over which the network is split, too, such as mesh.tensor and mesh.pipeline.
        """
        pairs = (pair for unit in self.units for pair in zip(unit.params, unit.shards, strict=True))
        return clip_shards(pairs, (self.comm, *others), max_norm)

    # -- state -------------------------------------------------------------------------------------------------------

    def shards(self) -> dict[str, Shard]:
        """Return this rank's part of each tensor in the module's state dict, by name; all ranks have the buffers.

        Extra state is not included, because it is not a tensor.
        """
        self._gathering.end()
        pieces = {id(shard.piece): shard for unit in self.units for shard in unit.pieces()}
        params = self.module.named_parameters(remove_duplicate=False)
        buffers = persistent_buffers(self.module)
        return {name: pieces[id(param)] for name, param in params} | {
            name: Shard(value.view(-1), 0, tuple(value.shape)) for name, value in buffers.items()
        }

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Return the module's whole state dict on every rank; every rank calls it. `shards` needs less memory."""
        self._gathering.end()
        found = whole_state(self.module, self.units, self.comm)
        self._passes.hold()
        if destination is None and not prefix:
            return found
        destination = {} if destination is None else destination
        destination.update({prefix + name: value for name, value in found.items()})
        return destination

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Load this rank's pieces of a state dict of the module; with `strict`, raise KeyError if a name is missing."""
        if assign:
            raise ValueError(
                "assign=True would put other parameters instead of the pieces, which the optimizer has; leave it out, "
                "or load the module's state before it is wrapped"
            )
        self._gathering.end()
        return load_whole(self.module, self.units, state_dict, strict)

    def whole_state_dict(self) -> dict[str, Any]:
        """Return `state_dict()`."""
        return self.state_dict()

    def load_whole_state_dict(self, state: dict[str, Any]) -> None:
        """Call `load_state_dict`."""
        self.load_state_dict(state)

    def __reduce_ex__(self, protocol):
        raise TypeError(
            "a FullyShardedDataParallel cannot be copied or pickled: its communicator belongs to this process; save "
            "its shards() with hpcdl.sharding.save, or its whole_state_dict()"
        )

    def _apply(self, fn, recurse=True):  # called by `to`, `double`, `cuda` and others
        raise RuntimeError(
            "a FullyShardedDataParallel cannot be moved or converted: its weights lie in vectors of their own; call "
            "to(), double() and the like on the module before it is wrapped"
        )
