"""How to get Triton: one sentence for everyone who misses it."""

TRITON = "'triton>=3.6,<3.10'"  # as in pyproject.toml
INSTALL_TRITON = f"pip install {TRITON} (on Linux)"
NO_TRITON = f"This needs Triton, which this Python lacks: {INSTALL_TRITON}."
