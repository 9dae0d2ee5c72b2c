"""`python -m hpcdl.training`, for torchrun: the same as `hpcdl train`."""

import typer

from hpcdl.training.hybrid.command import train

typer.run(train)
