"""One trainer for all of it: a model on a mesh of data, pipeline, tensor and sequence ranks, with ZeRO's stages.

    trainer = Trainer(comm, Configuration(model="gpt", mesh=(2, 2, 2, 1)))      # 8 ranks
    trainer.train(print)

What it does in each step, in the order of the code below: take this replica's samples, cut them into microbatches, pass
them forward and backward through this rank's layers, average the gradients over the replicas, and update. Any mesh
gives the losses of one rank but for the order of sums. The pieces are the labs': `hpcdl.parallel` cuts the model,
`hpcdl.ddp` and `hpcdl.sharding` share what replicas have in common, and `hpcdl.training.hybrid` joins them.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from hpcdl.collectives import recursive_doubling_all_reduce
from hpcdl.comm import Communicator
from hpcdl.data.seeds import wrapped
from hpcdl.ddp import ShardedSampler
from hpcdl.ddp.agreement import require_same
from hpcdl.memory import MemoryMeter, meter
from hpcdl.parallel import SCHEDULES, Mesh, cut_batch, cut_layers, run_stage
from hpcdl.parallel.shares import shares
from hpcdl.training.hybrid import checkpoints
from hpcdl.training.hybrid.configuration import Configuration
from hpcdl.training.hybrid.fitting import require_fit
from hpcdl.training.hybrid.gradients import Repeated, share_among
from hpcdl.training.hybrid.metering import MeteredComm
from hpcdl.training.hybrid.models import NOTHING, Batch, build
from hpcdl.training.hybrid.whole import WEIGHTS, Whole

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.float32}


class Trainer:
    """A training of `configuration` on `comm`'s ranks; every rank makes one, and calls the same methods.

    `done` steps are done; `mesh` has this rank's groups, and `comm` counts what it sends. With precision bf16 layers
    compute in bfloat16 (torch's autocast), and weights, gradients and states are float32. Raises ConfigurationError
    where the mesh does not fit the model, the batch or the number of ranks, and ValueError, on every rank, where ranks
    have different configurations.
    """

    def __init__(self, comm: Communicator, configuration: Configuration, device: str = "cpu"):
        self.configuration, self.device = configuration, device
        lines, advice = configuration.to_toml().splitlines(), "start all ranks with the same options"
        require_same("another configuration", lines, comm, advice)
        self.model = build(configuration.model, configuration.size)
        require_fit(configuration, self.model, comm.size)
        self.comm = MeteredComm(comm)
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
        self._layers = [self.replicas.chunk(module) for module in self.replicas.modules]
        self.whole = Whole(
            dense, lambda net: _parameters(self._chunks(net)), self.replicas.shards(), self.comm, self._owns
        )
        samples = len(self.model.data[1])
        self._sampler = ShardedSampler(samples, configuration.batch, mesh.replica, mesh.data.size, configuration.seed)
        self.states = checkpoints.states_of(configuration.optimizer)
        self.done = 0

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
        """Do the steps from `done` to the configuration's; the losses of these. `report` gets a record of each.

        With a `checkpoint`, a folder, the state is written every `every` steps and at the end; `resume` goes on from
        there. With `measure` records have `peak_bytes`, the most that this rank held in the step, by `hpcdl.memory`.
        """
        losses: list[float] = []
        with self._measured() if measure else nullcontext() as memory:
            for step, mine in self._sampler.shares(self.done, self.configuration.steps):
                before_step(step)
                if memory:
                    memory.reset_peak()
                record = self.step(step, mine) | ({"peak_bytes": memory.peak.total, "kinds": dict(memory.peak)} if memory else {})
                losses.append(record["loss"])
                report(record)
                if checkpoint and (self.done % every == 0 or self.done == self.configuration.steps):
                    self.save(checkpoint)
        return losses

    def step(self, step: int, mine: torch.Tensor) -> dict[str, Any]:
        """One step on the samples `mine` of this replica, and its record.

        `loss` is the mean of all ranks' samples before the update, `gradient_norm` that of the whole gradient; of this
        rank: `seconds`, of which it `waited` for messages, `bytes_sent` and `messages`. Raises FloatingPointError, on
        every rank and before any weight changes, where the loss or the norm is not finite.
        """
        counter = self.comm.meter
        begin, before = counter.clock(), counter.counts
        loss = self._gradients(self._microbatches(mine), self._total(step))
        self.replicas.reduce()
        loss, norm = self._agree(step, loss)
        self.replicas.step()
        self.done = step + 1
        counts = {name: count - before[name] for name, count in counter.counts.items()}
        record = {"step": self.done, "loss": loss, "gradient_norm": norm, "lr": self.configuration.lr}
        return {**record, "samples": self._total(step), "seconds": counter.clock() - begin, **counts}

    def _total(self, step: int) -> int:
        """The samples of a step, all replicas together: fewer at the end of an epoch."""
        return min(self._sampler.batch, self._sampler.n - step % self._sampler.steps * self._sampler.batch)

    def _microbatches(self, mine: torch.Tensor) -> list[Batch]:
        """As many on every replica: where there are too few samples, rows that do not count."""
        m = self.configuration.microbatches
        missing = max(0, m - len(mine))
        x, y = (samples[torch.cat([mine, mine.new_zeros(missing)])] for samples in self.model.data)
        y[len(mine) :] = NOTHING
        x, y = self.model.cut((x, y), self.mesh)
        x = x.to(DTYPES[self.configuration.precision]) if x.is_floating_point() else x
        return cut_batch(x.to(self.device), y.to(self.device), m)

    def _gradients(self, microbatches: list[Batch], total: int) -> float:
        """Forward and backward passes of this rank's layers; its part of the loss, 0 where another stage has it."""
        with self._autocast(), self.replicas.adding() if self._several else nullcontext():
            if self.mesh.pipeline.size == 1:
                return self._passes(microbatches, total)
            dtype = DTYPES[self.configuration.precision]
            run = run_stage(
                self.mesh.pipeline,
                self._layers,
                self.orders,
                microbatches,
                self._loss,
                self._between,
                parts=self.parts,
                dtype=dtype,
                total=total,
            )
            return run.loss or 0.0

    def _passes(self, microbatches: list[Batch], total: int) -> float:
        """Without a pipeline: one microbatch after the other, forward and backward."""
        done = 0.0
        for x, y in microbatches:
            loss = self._loss(self.replicas.modules[0](x), y) * (len(x) / total)
            loss.backward()
            done += loss.item()
        return done

    def _loss(self, y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Times the number of replicas, over which gradients are averaged."""
        return self.model.loss(y, target, self.mesh) * self.mesh.replicas.size

    def _agree(self, step: int, loss: float) -> tuple[float, float]:
        """The loss and the gradient's norm, of all ranks."""
        loss = loss / self.mesh.replicas.size if self.mesh.part == 0 else 0.0
        squares = 0.0
        for shard, owned in zip(self.whole.shards, self.whole.owned, strict=True):
            if owned and shard.piece.grad is not None:
                squares += float(torch.linalg.vector_norm(shard.piece.grad, dtype=torch.float64)) ** 2
        numbers = torch.tensor([loss, squares], dtype=torch.float64, device=self.comm.devices[0])
        recursive_doubling_all_reduce(numbers, self.comm)
        loss, norm = numbers[0].item(), math.sqrt(numbers[1].item())
        if not math.isfinite(loss + norm):
            raise FloatingPointError(
                f"step {step + 1}: the loss is {loss} and the gradient's norm {norm}; the weights are still those of "
                "the step before: try a smaller learning rate"
            )
        return loss, norm

    # -- its parts ---------------------------------------------------------------------------------------------------

    def fresh_model(self) -> nn.Sequential:
        """The whole model with the seed's weights, the same on every rank."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(wrapped(self.configuration.seed))
            return self.model.dense().to(DTYPES[self.configuration.precision])

    def optimizer(self, params: list) -> torch.optim.Optimizer:
        """The configuration's optimizer of these parameters, or shards of them."""
        lr = self.configuration.lr
        if self.configuration.optimizer == "sgd":
            return torch.optim.SGD(params, lr=lr, momentum=0.9)
        return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[self.configuration.optimizer](params, lr=lr)

    def _chunks(self, dense: nn.Sequential) -> list[nn.Sequential]:
        """This rank's layers of a whole model: each layer's part, those of this stage."""
        layers = self.model.split(dense, self.mesh)
        if self.configuration.precision == "bf16" and len(self.parts) > 1:
            layers = nn.Sequential(*(nn.Sequential(layer, _Wide()) for layer in layers))
        return cut_layers(list(layers), self.parts, self.mesh.stage)

    def _shapes(self) -> list[tuple[int, ...]]:
        """The shape of one sample between two parts of the pipeline."""
        boundaries, sizes = self.model.boundaries(self.mesh), shares(self.model.layers, len(self.parts))
        return [boundaries[sum(sizes[: part + 1]) - 1] for part in range(len(self.parts) - 1)]

    def _owns(self, whole: bool) -> bool:
        """Whether this rank speaks for a shard: the first of those that have the same."""
        repeated = isinstance(self.replicas, Repeated) and self.mesh.replicas.rank > 0
        return not repeated and not (whole and self.mesh.part > 0)

    def _measured(self) -> MemoryMeter:
        return meter(*self.replicas.modules, *(shard.piece for shard in self.whole.shards), self.replicas.optimizer)

    def _autocast(self) -> Any:
        low = self.configuration.precision == "bf16"
        kind = torch.device(self.device).type
        return torch.autocast(kind, torch.bfloat16, cache_enabled=False) if low else nullcontext()

    # -- its state ---------------------------------------------------------------------------------------------------

    def values(self, i: int, kind: str) -> torch.Tensor | None:
        """What this rank has of shard i: its weights, or a state of the optimizer."""
        piece = self.whole.shards[i].piece
        return piece if kind == WEIGHTS else self.replicas.optimizer.state.get(piece, {}).get(kind)

    def save(self, folder: str) -> None:
        """Write a checkpoint that any mesh can read; see `hpcdl.training.hybrid.checkpoints`."""
        checkpoints.save(self, folder)

    def resume(self, folder: str) -> bool:
        """Go on from the checkpoint of any mesh; False where the folder has none."""
        return checkpoints.resume(self, folder)

    def export(self, file: str) -> None:
        """Write the whole state as one file for torch.load."""
        checkpoints.export(self, file)

    def whole_model(self) -> nn.Sequential:
        """The model as one rank would have it, on every rank; every rank calls it."""
        return checkpoints.whole_model(self)


class _Wide(nn.Module):
    """Back to float32, in which stages talk, after a layer under autocast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


def _parameters(chunks: list[nn.Sequential]) -> list[nn.Parameter]:
    return [param for chunk in chunks for param in chunk.parameters()]
