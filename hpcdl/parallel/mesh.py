"""Hybrid parallelism: ranks in a grid, whose lines are the groups of one kind of parallelism each.

After Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM": tensor
parallelism, which sends most, between neighbouring ranks, which share a node; pipelines between ranks far apart.

    mesh = Mesh(comm, data=2, pipeline=2, tensor=2)
    layers = split_transformer(dense, mesh.tensor)
    chunks = cut_layers(layers, parts, mesh.stage)
    run_stage(mesh.pipeline, [Layers(chunk) for chunk in chunks], orders, microbatches, loss, between, total=N)
    sum_gradients((param for chunk in chunks for param in chunk.parameters()), mesh.data)

where the microbatches are this replica's share of N rows.
"""

from hpcdl.comm import Communicator, Group


class Mesh:
    """`comm`'s ranks as pipeline x data x tensor: rank = (stage * data + replica) * tensor + part.

    `mesh.tensor`, `mesh.data` and `mesh.pipeline` are the groups of this rank, communicators of the ranks that differ
    from it in that coordinate alone; `part`, `replica` and `stage` its ranks in them. Groups have messages, for the
    functions of `hpcdl.collectives`, and no collectives of the machine's own. Raises ValueError unless
    data * pipeline * tensor is the number of ranks.
    """

    def __init__(self, comm: Communicator, *, data: int = 1, pipeline: int = 1, tensor: int = 1):
        if min(data, pipeline, tensor) < 1 or data * pipeline * tensor != comm.size:
            raise ValueError(
                f"data={data} * pipeline={pipeline} * tensor={tensor} is {data * pipeline * tensor}; it must be the "
                f"{comm.size} ranks of comm, each 1 or more"
            )
        self.comm = comm
        rest, self.part = divmod(comm.rank, tensor)
        self.stage, self.replica = divmod(rest, data)
        first = comm.rank - self.part
        column = first - self.replica * tensor + self.part
        self.tensor = Group(comm, range(first, first + tensor))
        self.data = Group(comm, range(column, column + data * tensor, tensor))
        self.pipeline = Group(comm, range(comm.rank % (data * tensor), comm.size, data * tensor))
