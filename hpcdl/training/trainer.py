"""One trainer for all strategies: a model on a mesh of data, pipeline, tensor and sequence ranks, with ZeRO's stages.

    trainer = Trainer(comm, Configuration(model="gpt", mesh=(2, 2, 2, 1)))      # 8 ranks
    trainer.train(print)

Each step, in the order of the code below: take this replica's samples, split them into microbatches, pass them forward
and backward through this rank's layers, average the gradients over the replicas, and update. Any mesh gives the losses
of one rank, except for the order of sums. The pieces are the labs': `hpcdl.parallel` splits the model, `hpcdl.ddp` and
`hpcdl.sharding` share the replicas' common state, and `hpcdl.training.hybrid` joins them.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Communicator
from hpcdl.cost.machines import Machine
from hpcdl.data.seeds import wrapped
from hpcdl.ddp import ShardedSampler
from hpcdl.ddp.agreement import require_same
from hpcdl.lazy import without_compiler
from hpcdl.memory import Bytes, MemoryMeter, meter
from hpcdl.parallel import SCHEDULES, Mesh, cut_batch, cut_layers, run_stage
from hpcdl.parallel.shares import shares
from hpcdl.training.hybrid import checkpoints
from hpcdl.training.hybrid.configuration import Configuration
from hpcdl.training.hybrid.fitting import require_fit
from hpcdl.training.hybrid.gradients import Repeated, share_among, squares
from hpcdl.training.hybrid.metering import MeteredComm
from hpcdl.training.hybrid.models import NOTHING, Batch, build
from hpcdl.training.hybrid.precision import LOW, Scale, Wide, autocast, dtype_of
from hpcdl.training.hybrid.seconds import pace_of
from hpcdl.training.hybrid.timeline import RankTimeline, Untimed
from hpcdl.training.hybrid.whole import WEIGHTS, Whole
from hpcdl.training.hybrid.work import Speed, machine_of, shares_of_chunks


class Trainer:
    """A training of `configuration` on `comm`'s ranks; every rank creates one and calls the same methods.

    `done` steps are done; `mesh` has this rank's groups, and `comm` counts what it sends. With precision bf16 or fp16
    layers compute in 16 bits (torch's autocast), and weights, gradients and states are float32; fp16 scales the loss.
    `machine` is the reference for MFU (None: a known GPU's), and sets the pace of simulated ranks. With `profile` there
    is a `timeline` of this rank. Raises ConfigurationError if the mesh does not fit the model, the batch or the number
    of ranks, and ValueError, on every rank, if ranks have different configurations.
    """

    def __init__(
        self,
        comm: Communicator,
        configuration: Configuration,
        device: str = "cpu",
        machine: Machine | None = None,
        profile: bool = False,
    ):
        self.configuration, self.device = configuration, device
        self.dtype = dtype_of(configuration.precision)
        lines, advice = configuration.to_toml().splitlines(), "start all ranks with the same options"
        require_same("another configuration", lines, comm, advice)
        self.model = build(configuration.model, configuration.size)
        require_fit(configuration, self.model, comm.size)
        self.comm = MeteredComm(comm)
        self.speed = Speed(configuration, self.model, machine or machine_of(device))
        self.scale = Scale(configuration.precision)
        self.mesh = mesh = Mesh(self.comm, **configuration.axes)
        schedule = SCHEDULES[configuration.schedule if mesh.pipeline.size > 1 else "one_f_one_b"]
        self.orders = schedule.orders(mesh.pipeline.size, configuration.microbatches)
        self.parts = schedule.parts(mesh.pipeline.size, schedule.chunks)
        dense = self.fresh_model()
        self._several = mesh.pipeline.size > 1 or configuration.microbatches > 1
        self.replicas = share_among(
            mesh.replicas,
            [chunk.to(device) for chunk in self._chunks(dense)],
            self.optimizer,
            configuration.sharding,
            once=not self._several,
        )
        self._between = self._shapes()
        repeated = isinstance(self.replicas, Repeated)
        self.whole = Whole(
            dense,
            lambda net: _parameters(self._chunks(net)),
            self.replicas.shards(),
            self.comm,
            lambda whole: not whole or mesh.part == 0,
            (mesh.replicas.rank, mesh.replicas.size) if repeated else (0, 1),
        )
        samples = len(self.model.data[1])
        self._sampler = ShardedSampler(samples, configuration.batch, mesh.replica, mesh.data.size, configuration.seed)
        self.states = checkpoints.states_of(configuration.optimizer)
        self.done = 0
        self.timeline: Untimed = Untimed()
        if machine or profile:
            each, whole = shares_of_chunks(configuration, mesh, self.parts), configuration.sharding == 3
            self.timeline = RankTimeline(self.comm, each, pace_of(configuration, machine), whole)
        self._layers: list = []
        if mesh.pipeline.size > 1:  # only a pipeline needs chunks, which hook every layer
            self._layers = self.timeline.chunks([self.replicas.chunk(module) for module in self.replicas.modules])

    # -- a step ------------------------------------------------------------------------------------------------------

    def train(
        self,
        report: Callable[[dict], None] = lambda record: None,
        before_step: Callable[[int], None] = lambda step: None,
        *,
        checkpoint: str | None = None,
        every: int = 50,
        measure: bool = False,
    ) -> list[float]:
        """Run the steps from `done` to the configuration's number, and return their losses. `report` gets each step's
        record.

        With a `checkpoint`, a folder, the state is written every `every` steps and at the end; `resume` continues from
        it. With `measure` records have `peak_bytes`, the most that this rank held in the step, and `peak_by_kind`.
        Raises OSError, before the first step, if another run saves in the folder or it cannot be written.
        """
        losses: list[float] = []
        with checkpoints.alone(checkpoint, self.comm), self._measured() if measure else nullcontext() as memory:
            for step, mine in self._sampler.shares(self.done, self.configuration.steps):
                before_step(step)
                if memory:
                    memory.reset_peak()
                record = self.step(step, mine) | (_held(memory.peak) if memory else {})
                losses.append(record["loss"])
                report(record)
                if checkpoint and (self.done % every == 0 or self.done == self.configuration.steps):
                    self.save(checkpoint)
        return losses

    def step(self, step: int, mine: torch.Tensor) -> dict[str, Any]:
        """Take one step on this replica's samples `mine`; return its record.

        `loss` is the mean over all ranks' samples before the update, `gradient_norm` the whole gradient's norm. For
        this rank there are `seconds`, the part `waited` for messages, `bytes_sent` and `messages`; for all ranks tokens
        or images per second and `mfu`. Raises FloatingPointError, on every rank and before any weight changes, if the
        loss or the norm is not finite. In fp16 such a norm halves the loss scale instead, and this step's update is
        skipped.
        """
        counter, total = self.comm.meter, self._total(step)
        begin, before = counter.clock(), counter.counts
        with self.timeline.span("input"):
            microbatches = self._microbatches(mine)
        loss = self._gradients(microbatches, total)
        with self.timeline.span("gradients"):
            self.replicas.reduce()
            loss, norm = self._agree(step, loss)
        with self.timeline.span("optimizer"):
            scale = self.scale.update(self.replicas, norm)
        self.done = step + 1
        counts = {name: count - before[name] for name, count in counter.counts.items()}
        seconds = counter.clock() - begin
        self.timeline.note("step", begin, begin + seconds)
        record = {"step": self.done, "loss": loss, "gradient_norm": norm, "lr": self.configuration.lr, **scale}
        return {**record, "samples": total, "seconds": seconds, **counts, **self.speed.rates(total, seconds)}

    def _total(self, step: int) -> int:
        """Return the samples of a step over all replicas: fewer at the end of an epoch."""
        return min(self._sampler.batch, self._sampler.n - step % self._sampler.steps * self._sampler.batch)

    def _microbatches(self, mine: torch.Tensor) -> list[Batch]:
        """Split samples into the same number of microbatches on every replica, with padding rows that do not count."""
        m = self.configuration.microbatches
        rows = mine if len(mine) >= m else torch.cat([mine, mine.new_zeros(m - len(mine))])
        x, y = (samples[rows] for samples in self.model.data)
        y[len(mine) :] = NOTHING
        x, y = self.model.cut((x, y), self.mesh)
        x = x.to(self.dtype) if x.is_floating_point() else x
        return cut_batch(x.to(self.device), y.to(self.device), m)

    def _gradients(self, microbatches: list[Batch], total: int) -> float:
        """Run forward and backward through this rank's layers; return its part of the loss, 0 if another stage has
        it."""
        with (
            autocast(self.configuration.precision, self.device),
            self.replicas.adding() if self._several else nullcontext(),
        ):
            if self.mesh.pipeline.size == 1:
                return self._passes(microbatches, total)
            run = run_stage(
                self.mesh.pipeline,
                self._layers,
                self.orders,
                microbatches,
                self._loss,
                self._between,
                parts=self.parts,
                dtype=self.dtype,
                total=total,
            )
            return run.loss or 0.0

    def _passes(self, microbatches: list[Batch], total: int) -> float:
        """Run one microbatch after another, forward and backward, without a pipeline."""
        done = 0.0
        for k, (x, y) in enumerate(microbatches):
            with self.timeline.span("forward", len(x), k):
                loss = self._loss(self.replicas.modules[0](x), y) * (len(x) / total)
            with self.timeline.span("backward", len(x), k):
                loss.backward()
            done += loss.item()
        return done

    def _loss(self, y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the loss times the number of replicas, over which gradients are averaged, and in fp16 times the
        scale."""
        return self.model.loss(y.to(self.dtype), target, self.mesh) * (self.mesh.replicas.size * self.scale.value)

    def _agree(self, step: int, loss: float) -> tuple[float, float]:
        """Return the loss and the gradient's norm over all ranks."""
        loss = loss / (self.mesh.replicas.size * self.scale.value) if self.mesh.part == 0 else 0.0
        self.scale.unscale(self.whole.shards)
        numbers = torch.tensor([loss, self._squares()], dtype=torch.float64, device=self.comm.devices[0])
        recursive_doubling_all_reduce(numbers, self.comm)
        loss, norm = numbers[0].item(), math.sqrt(numbers[1].item())
        self.scale.require_finite(step, loss, norm)
        return loss, norm

    def _squares(self) -> float:
        """Return the sum of the squares of the gradients that this rank contributes."""
        pieces = (shard.piece for shard, owned in zip(self.whole.shards, self.whole.owned, strict=True) if owned)
        with torch._C.DisableTorchFunctionSubclass():  # a wrapper may guard its gradients
            return squares([piece.grad for piece in pieces if piece.grad is not None])

    # -- its parts ---------------------------------------------------------------------------------------------------

    def fresh_model(self) -> nn.Sequential:
        """Return the whole model with the seed's weights, the same on every rank."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(wrapped(self.configuration.seed))
            return self.model.dense().to(self.dtype)

    def optimizer(self, params: list) -> torch.optim.Optimizer:
        """Return the configuration's optimizer for these parameters or shards."""
        options = {"lr": self.configuration.lr, **({"momentum": 0.9} if self.configuration.optimizer == "sgd" else {})}
        kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        return without_compiler(kinds[self.configuration.optimizer])(params, **options)

    def _chunks(self, dense: nn.Sequential) -> list[nn.Sequential]:
        """Return this rank's part of each of its stage's layers."""
        layers = self.model.split(dense, self.mesh)
        if self.configuration.precision in LOW and len(self.parts) > 1:
            layers = nn.Sequential(*(nn.Sequential(layer, Wide()) for layer in layers))
        return cut_layers(list(layers), self.parts, self.mesh.stage)

    def _shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of one sample between two parts of the pipeline."""
        boundaries, sizes = self.model.boundaries(self.mesh), shares(self.model.layers, len(self.parts))
        return [boundaries[sum(sizes[: part + 1]) - 1] for part in range(len(self.parts) - 1)]

    def _measured(self) -> MemoryMeter:
        return meter(*self.replicas.modules, *(shard.piece for shard in self.whole.shards), self.replicas.optimizer)

    # -- its state ---------------------------------------------------------------------------------------------------

    def values(self, i: int, kind: str) -> torch.Tensor | None:
        """Return this rank's shard i: its weights, or a state of the optimizer."""
        piece = self.whole.shards[i].piece
        return piece if kind == WEIGHTS else self.replicas.optimizer.state.get(piece, {}).get(kind)

    def save(self, folder: str) -> None:
        """Write a checkpoint that any mesh can read; see `hpcdl.training.hybrid.checkpoints`."""
        checkpoints.save(self, folder)

    def resume(self, folder: str) -> bool:
        """Continue from the checkpoint of any mesh; return False if the folder has none."""
        return checkpoints.resume(self, folder)

    def export(self, file: str) -> None:
        """Write the whole state as one file for torch.load."""
        checkpoints.export(self, file)

    def whole_model(self) -> nn.Sequential:
        """Return the whole model, as on one rank, on every rank; every rank calls it."""
        return checkpoints.whole_model(self)


def _held(peak: Bytes) -> dict[str, Any]:
    return {"peak_bytes": peak.total, "peak_by_kind": dict(peak)}


def _parameters(chunks: list[nn.Sequential]) -> list[nn.Parameter]:
    return [param for chunk in chunks for param in chunk.parameters()]
