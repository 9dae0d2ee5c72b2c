"""Hybrid parallelism: ranks in a grid, where each line is a group for one kind of parallelism.

After Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM": tensor
parallelism, which sends most, between neighbouring ranks, which share a node; pipelines between ranks far apart.

    mesh = Mesh(comm, data=2, pipeline=2, tensor=2)
    layers = split_transformer(dense, mesh.tensor)
    chunks = cut_layers(layers, parts, mesh.stage)
    run_stage(mesh.pipeline, [Layers(chunk) for chunk in chunks], orders, microbatches, loss, between, total=N)
    sum_gradients((param for chunk in chunks for param in chunk.parameters()), mesh.data)

where the microbatches are this replica's share of N rows. `hpcdl.training.Trainer` does all of this.
"""

from hpcdl.comm import Communicator, Group


class Mesh:
    """`comm`'s ranks as a grid: rank = ((stage * data + replica) * sequence + position) * tensor + part.

    `mesh.pipeline`, `mesh.data`, `mesh.sequence` and `mesh.tensor` are the groups of this rank, communicators of the
    ranks that differ from it only in that coordinate; `stage`, `replica`, `position` and `part` its ranks in them.
    `mesh.replicas` is the group of all ranks with this rank's weights, which differ in `replica` and `position`. Groups
    have messages, for the functions of `hpcdl.collectives`, and no collectives of the machine's own. Raises ValueError
    unless data * pipeline * tensor * sequence is the number of ranks.
    """

    def __init__(self, comm: Communicator, *, data: int = 1, pipeline: int = 1, tensor: int = 1, sequence: int = 1):
        axes = {"data": data, "pipeline": pipeline, "tensor": tensor, "sequence": sequence}
        ranks = data * pipeline * tensor * sequence
        if min(axes.values()) < 1 or ranks != comm.size:
            said = " * ".join(f"{name}={size}" for name, size in axes.items() if size != 1 or name != "sequence")
            raise ValueError(f"{said} is {ranks}; it must be the {comm.size} ranks of comm, each 1 or more")
        self.comm = comm
        rest, self.part = divmod(comm.rank, tensor)
        rest, self.position = divmod(rest, sequence)
        self.stage, self.replica = divmod(rest, data)
        self.tensor = self._line(1, tensor, self.part, "tensor")
        self.sequence = self._line(tensor, sequence, self.position, "sequence")
        self.data = self._line(tensor * sequence, data, self.replica)
        self.pipeline = self._line(tensor * sequence * data, pipeline, self.stage, "activations")
        self.replicas = self._line(tensor, sequence * data, self.replica * sequence + self.position)

    def _line(self, stride: int, size: int, own: int, kind: str = "") -> Group:
        """Return the ranks that differ from this one in a coordinate of `size` values, in which it is the `own`-th.

        `kind` labels their messages; replicas label theirs one by one.
        """
        first = self.comm.rank - own * stride
        comm = self.comm.labelled(kind) if kind else self.comm
        return Group(comm, range(first, first + stride * size, stride))
