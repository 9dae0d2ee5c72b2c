"""Support library of the course: numerics, networks, communicators, live engines and pictures.

Nothing heavy is imported here: `import hpcdl` is instant, and each part imports what it needs
(`hpcdl.comm` works without MPI, `hpcdl.cluster` without a GPU).
"""

__version__ = "0.1.0"
