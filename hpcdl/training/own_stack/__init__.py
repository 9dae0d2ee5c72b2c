"""A training in which every brick can be replaced: the library lends what a notebook does not define yet.

- `bricks`: the parts of a training, and who lends each brick
- `lent`: the bricks that the library has only for this purpose; the others come from their own modules
- `loans`: while a block runs, the names that a notebook lacks refer to the library's functions
- `witness`: which functions and torch operators really ran on a rank
- `lines`: how many lines of code those functions have, and whose they are
- `oracle`: the same training on one machine, in float64, with torch's autograd
- `earlier`: the text of a function that was written in the notebook of an earlier lab

Names are imported on first use.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.training.own_stack.bricks import BRICKS, Brick
    from hpcdl.training.own_stack.earlier import bring
    from hpcdl.training.own_stack.lines import Tally, tally
    from hpcdl.training.own_stack.loans import lending, mine
    from hpcdl.training.own_stack.oracle import logits, serial
    from hpcdl.training.own_stack.witness import Execution, Function, witnessed

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
        "Execution": "witness",
        "witnessed": "witness",
    },
)
