"""Pipeline parallelism: the layers cut into stages, a batch into microbatches that pass through them.

    chunks = [Layers(module) for module in cut_layers(network, parts, comm.rank)]
    run_stage(comm, chunks, orders, cut_batch(x, y, m), loss, between=(hidden,), parts=parts)

`cut` makes parts and microbatches, `layers` does F, B and W of a part, `plan` checks a schedule and says what each op
needs, `messages` brings it, `stage` puts them together. The schedules are in `hpcdl.parallel.schedules`.
"""

from hpcdl.lazy import exports

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "run_stage": "stage",
        "StageRun": "stage",
        "Chunk": "layers",
        "Layers": "layers",
        "cut_layers": "cut",
        "cut_batch": "cut",
    },
)
