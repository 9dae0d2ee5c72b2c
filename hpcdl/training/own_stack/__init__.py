"""A training whose every brick can be exchanged: what a notebook does not define yet, the library lends.

- `bricks`: what a training is made of, and who lends each brick
- `lent`: those bricks that are the library's for this purpose alone; the others come from where they live
- `loans`: for as long as a block runs, the names that a notebook lacks mean the library's functions
- `witness`: which functions and which of torch's operators really ran, on a rank
- `lines`: how many lines of code those functions have, and whose they are
- `oracle`: the same training on one machine, in float64, with torch's autograd
- `earlier`: the text of a function that was written in the notebook of an earlier lab

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.training.own_stack.bricks import BRICKS, Brick
    from hpcdl.training.own_stack.earlier import bring
    from hpcdl.training.own_stack.lines import Tally, tally
    from hpcdl.training.own_stack.loans import lending, mine
    from hpcdl.training.own_stack.oracle import logits, serial
    from hpcdl.training.own_stack.witness import Function, Ran, witnessed

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "BRICKS": "bricks",
        "Brick": "bricks",
        "bring": "earlier",
        "lending": "loans",
        "mine": "loans",
        "Tally": "lines",
        "tally": "lines",
        "logits": "oracle",
        "serial": "oracle",
        "Function": "witness",
        "Ran": "witness",
        "witnessed": "witness",
    },
)
