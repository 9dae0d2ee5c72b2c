"""How late may a gradient be?"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.consistency.clock import ASP, BSP, Timeline, timeline
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
        "timeline": "clock",
        "work": "worker",
    },
)
