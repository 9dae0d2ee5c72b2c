"""Pipeline parallelism: layers are split into stages, and a batch into microbatches that pass through them.

    chunks = [Layers(module) for module in cut_layers(network, parts, comm.rank)]
    run_stage(comm, chunks, orders, cut_batch(x, y, m), loss, between=(hidden,), parts=parts)

What a forward pass draws or decides for its whole batch, such as dropout or an early exit by the batch's mean, it draws
or decides for each microbatch. If microbatches then take different ways by all of their samples, F or B raises
RuntimeError.

Begin with `plain`: the whole idea in one sitting, for one schedule.

`cut` makes parts and microbatches, `layers` does F, B and W of a part and `fused_layers` does them faster, `plan`
checks a schedule and determines what each op needs, `messages` delivers it, and `stage` combines them. The schedules
are in `hpcdl.parallel.schedules`.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.parallel.pipeline.cut import cut_batch, cut_layers
    from hpcdl.parallel.pipeline.fused_layers import FusedLayers
    from hpcdl.parallel.pipeline.layers import Chunk, Layers
    from hpcdl.parallel.pipeline.stage import StageRun, run_stage
    from hpcdl.parallel.pipeline.values import RowSpec

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "run_stage": "stage",
        "StageRun": "stage",
        "Chunk": "layers",
        "Layers": "layers",
        "FusedLayers": "fused_layers",
        "RowSpec": "values",
        "cut_layers": "cut",
        "cut_batch": "cut",
    },
)
