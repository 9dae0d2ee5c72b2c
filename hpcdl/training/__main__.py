"""`python -m hpcdl.training`, for torchrun: the same as `hpcdl train`."""

from hpcdl.commands import program
from hpcdl.training.hybrid.command import train

program(train, "python -m hpcdl.training")
