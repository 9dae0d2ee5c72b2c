"""How to get Triton: one sentence for everyone who misses it."""

INSTALL_TRITON = "pip install 'triton>=3.6,<3.10' (on Linux)"
NO_TRITON = f"This needs Triton, which this Python lacks: {INSTALL_TRITON}."
