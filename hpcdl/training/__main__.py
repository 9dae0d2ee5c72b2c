"""`python -m hpcdl.training`, as torchrun starts it: the same as `hpcdl train`."""

import typer

from hpcdl.training.hybrid.command import train

typer.run(train)
