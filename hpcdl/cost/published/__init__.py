"""The models beside what others have published: `python -m hpcdl.cost.published > docs/published.md`.

One set of assumptions for all rows, stated on the page (`page.ASSUMPTIONS`); where they do not give a figure, the page
says so. Figures by family, a function for each source: `data_parallel`, `pipelines`, `transformers`.
"""

from hpcdl.cost.published import data_parallel, pipelines, transformers
from hpcdl.cost.published.row import Row

__all__ = ["SOURCES", "Row", "rows"]

SOURCES = (
    transformers.zero,
    pipelines.gpipe,
    pipelines.gpipe_without_nvlink,
    pipelines.zero_bubble,
    pipelines.zero_bubble_memory,
    pipelines.zero_bubble_throughput,
    pipelines.pipedream,
    transformers.megatron,
    transformers.megatron_2021,
    transformers.korthikanti,
    transformers.ring_attention,
    transformers.deepseek,
    data_parallel.goyal,
    data_parallel.horovod,
    data_parallel.poseidon,
    data_parallel.large_batch,
    data_parallel.micikevicius,
    data_parallel.case_study,
)


def rows() -> list[Row]:
    """Every published figure and our prediction."""
    return [row for source in SOURCES for row in source()]
