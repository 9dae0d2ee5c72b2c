"""Find which elements of the whole model each rank holds, to move a state from any mesh to any other.

The model is split again with the numbers 0, 1, 2, ... instead of weights: a rank's numbers then show which elements it
holds, however the model is split.
"""

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from math import prod

import torch
from torch import nn

from hpcdl.collectives import fast_ring_all_reduce
from hpcdl.comm import Communicator
from hpcdl.sharding import Checkpoint, FlatLayout, Shard, save

WEIGHTS = ""  # the kind of the weights; other kinds are names of optimizer states
CONFIGURATION, SCALE = "configuration", "loss_scale"  # other entries of a checkpoint

Values = Callable[[int, str], torch.Tensor | None]  # parameter and kind -> values of this rank's shard


class Whole:
    """The parameters of `dense` as one vector, and the positions in it of this rank's `shards`.

    `local` is this rank's parameters after `split`, in the order of `shards`. `owner(whole)` tells whether this replica
    contributes a shard that has the whole parameter, or some of its elements. `replica` is this rank's number among the
    replicas that repeat its shards, and how many they are. Vectors are whole on every rank, one kind at a time.
    """

    def __init__(
        self,
        dense: nn.Sequential,
        local: Callable[[nn.Sequential], Sequence[torch.Tensor]],
        shards: Sequence[Shard],
        comm: Communicator,
        owner: Callable[[bool], bool],
        replica: tuple[int, int] = (0, 1),
    ):
        named = dict(dense.named_parameters())
        self.names, self.shapes = list(named), [tuple(param.shape) for param in named.values()]
        self._first = [0]
        for shape in self.shapes:
            self._first.append(self._first[-1] + prod(shape))
        self.comm, self.shards = comm, shards
        self._places = [
            numbers.detach().as_subclass(torch.Tensor).flatten()[shard.start : shard.start + shard.piece.numel()].long()
            for numbers, shard in zip(local(_numbered(dense)), shards, strict=True)
        ]
        self._contributed = [
            owner(prod(shard.shape) == self._size(places)) for shard, places in zip(shards, self._places, strict=True)
        ]
        self._replica = replica
        self.owned = [contributed and replica[0] == 0 for contributed in self._contributed]
        self.dtype = next(iter(named.values())).dtype

    @property
    def numel(self) -> int:
        """Return the model's number of elements."""
        return self._first[-1]

    def vector(self, values: Values, kind: str) -> torch.Tensor:
        """Return the elements that this rank contributes, zeros elsewhere: the sum over ranks is the whole vector."""
        found = torch.zeros(self.numel, dtype=self.dtype, device=self.comm.devices[0])
        for i, (places, owned) in enumerate(zip(self._places, self.owned, strict=True)):
            value = values(i, kind) if owned and places.numel() else None
            if value is not None:
                found[places.to(found.device)] = value.detach().as_subclass(torch.Tensor).to(found.device).flatten()
        return found

    def places(self) -> torch.Tensor:
        """Return where the elements of `part` are in the whole vector."""
        return self._part(self._places)

    def part(self, values: Values, kind: str) -> torch.Tensor:
        """Return a copy of this rank's equal part of the elements that its replicas contribute, flat; each element is
        in one rank's part."""
        found = (values(i, kind) for i in range(len(self.shards)))
        return self._part(
            [
                shard.piece.new_zeros(shard.piece.shape) if value is None else value
                for shard, value in zip(self.shards, found, strict=True)
            ]
        ).clone()

    def _part(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        n, of = self._replica
        flat = [
            tensor.detach().as_subclass(torch.Tensor).flatten()
            for tensor, contributed in zip(tensors, self._contributed, strict=True)
            if contributed
        ]
        return torch.cat([x[len(x) * n // of : len(x) * (n + 1) // of] for x in flat])

    def pick(self, vector: torch.Tensor) -> Iterator[torch.Tensor]:
        """Return each of this rank's shards from a whole vector."""
        return (vector[places].view(shard.piece.shape) for shard, places in zip(self.shards, self._places, strict=True))

    def gather(self, values: Values, kind: str) -> list[torch.Tensor]:
        """Return every parameter's whole values of a kind, on every rank."""
        found = self.vector(values, kind)
        fast_ring_all_reduce(found, self.comm)
        return self.views(found.cpu())

    def views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Split a vector into its parameters, as views."""
        parts = vector.split([prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def save(
        self,
        folder: str,
        step: int,
        values: Values,
        kinds: Sequence[str],
        settings: str,
        scale: torch.Tensor | None = None,
    ) -> None:
        """Write a checkpoint with `hpcdl.sharding.save`: each rank writes an equal part of every kind, and the `scale`
        if any."""
        layout = FlatLayout(self.shapes, self.comm)
        found: dict[str, Shard] = {}
        for kind in (WEIGHTS, *kinds):
            share = layout.reduce_scatter(self.vector(values, kind), self.comm).clone()
            found |= {_name(name, kind): piece for name, piece in zip(self.names, layout.pieces(share), strict=True)}
        if self.comm.rank == 0:
            letters = torch.frombuffer(bytearray(settings.encode()), dtype=torch.uint8)
            found[CONFIGURATION] = Shard(letters, 0, tuple(letters.shape))
            found |= {SCALE: Shard(scale, 0, tuple(scale.shape))} if scale is not None else {}
        save(folder, step, found, self.comm)

    def read(self, state: Checkpoint, kind: str) -> Iterator[torch.Tensor]:
        """Read each of this rank's shards from a checkpoint."""
        for shard, places in zip(self.shards, self._places, strict=True):
            if not places.numel():
                yield shard.piece.detach().as_subclass(torch.Tensor).clone()
                continue
            number, low, high = self._number(places), int(places.min()), int(places.max())
            first = self._first[number]
            found = state.read(_name(self.names[number], kind), low - first, high + 1 - first)
            yield found[places - low].view(shard.piece.shape)

    def name(self, i: int) -> str:
        """Return the name of shard i's parameter in the whole model; empty for a shard without elements."""
        return self.names[self._number(self._places[i])] if self._places[i].numel() else ""

    def _number(self, places: torch.Tensor) -> int:
        """Return the number of the parameter that holds these elements."""
        return bisect_right(self._first, int(places[0])) - 1

    def _size(self, places: torch.Tensor) -> int:
        return prod(self.shapes[self._number(places)]) if places.numel() else -1


def settings_of(state: Checkpoint) -> str:
    """Return the settings given to `save`; raise ValueError if a trainer did not write the checkpoint."""
    if CONFIGURATION not in state.shapes:
        raise ValueError("it has no configuration, so another program wrote it; give a new folder to start afresh")
    return bytes(state.read(CONFIGURATION, 0, state.shapes[CONFIGURATION][0]).tolist()).decode()


def _name(name: str, kind: str) -> str:
    return f"{name}/{kind}" if kind else name


@torch.no_grad()
def _numbered(dense: nn.Sequential) -> nn.Sequential:
    """Fill the parameters of `dense` with 0, 1, 2, ..., one after another."""
    numbered, first = copy.deepcopy(dense).double(), 0
    for param in numbered.parameters():
        param.copy_(torch.arange(first, first + param.numel(), dtype=torch.float64).view(param.shape))
        first += param.numel()
    return numbered
