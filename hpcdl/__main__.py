"""`python -m hpcdl` is the command line."""

from hpcdl.cli import app

app(prog_name="hpcdl")
