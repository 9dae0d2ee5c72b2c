"""How late may a gradient be?"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.consistency.clock import ASP, BSP, Timeline, timeline

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "ASP": "clock",
        "BSP": "clock",
        "Timeline": "clock",
        "timeline": "clock",
    },
)
