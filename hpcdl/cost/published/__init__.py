"""The models compared with published results: `python -m hpcdl.cost.published > docs/published.md`.

All rows share one set of assumptions, stated on the page (`page.ASSUMPTIONS`); if they cannot give a figure, the page
says so. Figures by family, with a function for each source: `data_parallel`, `servers`, `pipelines`, `transformers`;
runs whose constants are fitted together, and left out one at a time: `transformer_runs`, `images`. `intervals` computes
`hpcdl.cost.reached.KINDS` from the runs left out.
"""

from hpcdl.cost.published import data_parallel, pipelines, servers, transformers
from hpcdl.cost.published.images import images, to_the_end
from hpcdl.cost.published.row import Row
from hpcdl.cost.published.runs import PublishedRun
from hpcdl.cost.published.transformer_runs import transformer_runs

__all__ = ["SOURCES", "PublishedRun", "Row", "rows", "runs"]

SOURCES = (
    transformers.zero,
    transformers.largest_replica,
    pipelines.gpipe,
    pipelines.gpipe_without_nvlink,
    pipelines.zero_bubble,
    pipelines.zero_bubble_memory,
    pipelines.zero_bubble_throughput,
    pipelines.pipedream,
    transformers.megatron_days,
    transformers.korthikanti,
    transformers.ring_attention,
    transformers.deepseek,
    data_parallel.goyal,
    data_parallel.horovod,
    data_parallel.nccl_over_tcp,
    data_parallel.large_batch,
    data_parallel.micikevicius,
    data_parallel.lecture_counts,
    data_parallel.case_study,
    to_the_end,
    servers.poseidon,
    servers.caffe,
    servers.pipedream,
    servers.torch_rpc,
)


def runs() -> list[PublishedRun]:
    """Return every published run that is predicted from its sizes."""
    return [*transformer_runs(), *images()]


def rows() -> list[Row]:
    """Return every published figure with our prediction."""
    fixed = [row for source in SOURCES for row in source()]
    return fixed + [
        Row(run.source, run.what, run.published, run.predicted(), run.unit, kind=run.kind) for run in runs()
    ]
