"""How late may a gradient be?"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.consistency.clock import ASP, BSP, Timeline, timeline
    from hpcdl.consistency.fast_hogwild import logistic_epochs
    from hpcdl.consistency.hogwild import logistic_loss, round_robin, sparsity
    from hpcdl.consistency.server import Served, Server, Update
    from hpcdl.consistency.worker import Worker, work

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "ASP": "clock",
        "BSP": "clock",
        "Served": "server",
        "Server": "server",
        "Timeline": "clock",
        "Update": "server",
        "Worker": "worker",
        "logistic_epochs": "fast_hogwild",
        "logistic_loss": "hogwild",
        "round_robin": "hogwild",
        "sparsity": "hogwild",
        "timeline": "clock",
        "work": "worker",
    },
)
