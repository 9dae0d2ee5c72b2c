"""Seeds of any size, for torch's generators, which take 64 bits."""


def wrapped(seed: int) -> int:
    """Return the seed modulo 2^64, as torch itself takes negative ones: what fits into 64 bits stays the same seed."""
    return int(seed) % 2**64
