"""Ring attention: the sequence is split across ranks, and keys and values go around the ring while attention is
computed.

Source: Liu, Zaharia and Abbeel 2023, "Ring attention with blockwise transformers for near-infinite context".
"""

from hpcdl.cost.work import check_numbers


def least_block(peak: float, bandwidth: float) -> float:
    """F / B tokens: blocks of at least this length hide the messages of ring attention.

    A block of c queries against c keys takes 4 d c^2 operations at `peak` per second; the next keys and values are
    4 d c bytes in 16 bits, at `bandwidth` bytes per second. Raises ValueError for rates that are not above 0.
    """
    check_numbers(above=True, peak=peak, bandwidth=bandwidth)
    return peak / bandwidth


def least_sequence(peak: float, bandwidth: float) -> float:
    """6 F / B tokens on each rank: a rank holds six blocks, two of queries and outputs, four of keys and values."""
    return 6 * least_block(peak, bandwidth)
