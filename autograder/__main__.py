"""`python -m autograder` is the command line."""

from autograder.cli import app

app(prog_name="autograder")
