"""How a training is distributed over ranks, and its other options: the `layout` of `hpcdl.cost.training.predict`."""

from collections.abc import Callable
from typing import NamedTuple

from hpcdl.cost.blocks import ATTENTION, KERNELS, Cut
from hpcdl.cost.pipeline import BUBBLES
from hpcdl.cost.scaling import merged
from hpcdl.cost.work import check_recompute

CONTEXT = ("ring", "all_gather", "all_to_all")


class Layout(NamedTuple):
    """How a training is distributed over data x tensor x pipeline x context ranks, and its other options.

    `microbatch` samples at a time (None: all of a rank's); `chunks` per pipeline stage; `recompute` as in
    `work.RECOMPUTE`, in the share `recomputed` of the layers; `itemsize` of activations and gradients; `update_bytes`
    moved by the optimizer per parameter.

    `zero` is the stage of ZeRO, 3 for FSDP: weights are gathered for each layer and pass over `shards` ranks (None: all
    with the same stage), with `prefetch` while the previous layer is computed. `context` ranks split the sequence and
    pass keys and values around a "ring", or "all_gather" them, or exchange heads by "all_to_all" (Ulysses). `experts`
    ranks share the experts; the fullest expert has `imbalance` times the mean; a token goes to at most `expert_nodes`
    nodes, and `hide_experts` computes another microbatch meanwhile (DualPipe). `attention` writes "scores", or is
    "flash"; `kernels` are "fused" or "eager". Stages have the same number of layers, and the last one also has the
    output; `balanced` ones take equally long.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    chunks: int = 1
    microbatch: int | None = None
    schedule: str = "one_f_one_b"  # a name of `cost.pipeline.BUBBLES`
    sequence_parallel: bool = False
    recompute: str = "nothing"
    precision: str = "fp32"
    itemsize: int = 4
    update_bytes: float = 0.0
    buckets: Callable = merged
    overlap: bool = True
    zero: int = 0
    shards: int | None = None
    prefetch: bool = True
    context: int = 1
    context_by: str = "ring"
    experts: int = 1
    imbalance: float = 1.0
    expert_nodes: int | None = None
    hide_experts: bool = False
    attention: str = "scores"
    kernels: str = "fused"
    dropout: bool = True
    recomputed: float = 1.0
    balanced: bool = False

    @property
    def ranks(self) -> int:
        """data x tensor x pipeline x context."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int:
        """Return the number of ranks with the same layers, which sum gradients or share weights: data x context."""
        return self.data * self.context

    def microbatches(self, batch: int) -> int:
        """Return the number of microbatches per pipeline; raise ValueError if a batch does not divide into them."""
        size = self.microbatch or batch // self.data
        count, rest = divmod(batch, self.data * size) if size else (0, batch)
        if rest or not count:
            raise ValueError(
                f"batch is {batch}; {self.data} data-parallel groups with microbatches of {size} need a multiple of "
                f"{self.data * size or self.data}"
            )
        return count

    def cut(self, samples: int, low: float = 1.0) -> Cut:
        """Return one rank's part of a layer, with this many samples in a microbatch."""
        return Cut(
            samples, self.itemsize, self.tensor, self.sequence_parallel, self.context, self.experts, self.imbalance,
            self.attention, self.kernels, self.dropout, low,
        )  # fmt: skip

    def check(self) -> None:
        """Raise ValueError for unknown names, and numbers that do not divide each other."""
        check_recompute(self.recompute)
        for name, value, known in (
            ("schedule", self.schedule, BUBBLES),
            ("attention", self.attention, ATTENTION),
            ("kernels", self.kernels, KERNELS),
            ("context_by", self.context_by, CONTEXT),
            ("zero", self.zero, range(4)),
        ):
            if value not in known:
                words = "the schedules are" if name == "schedule" else "it is one of"
                raise ValueError(f"{name} is {value!r}; {words} {', '.join(map(str, known))}")
        for name in ("shards", "experts"):
            value = getattr(self, name) or 1
            if self.replicas % value:
                raise ValueError(f"{name} is {value}; it divides data x context, which is {self.replicas}")
        if min(self[:4]) < 1 or self.context < 1 or self.imbalance < 1 or not 0 <= self.recomputed <= 1:
            raise ValueError(f"{self!r:.200}; ranks and imbalance are 1 or more, recomputed from 0 to 1")
