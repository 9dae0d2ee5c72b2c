"""Random bits without a state: Philox4x32-10, in plain torch.

Philox turns a counter (128 bits) and a key (64 bits) into 128 random bits by ten rounds of multiplying and mixing.
Nothing is carried from one call to the next: any element's bits can be had alone, by any thread, in any order.

Element number p takes 16 of the 128 bits of one call. Its key is the seed, low 32 bits first; its counter is (g mod
2^32, g div 2^32, 0, 0) with g = p // 8; of the four words that come back p has word (p mod 8) // 2, the low half where
p is even, the high half where it is odd. In little-endian memory the bits of the elements are therefore adjacent. An
element that needs more than 16 bits continues with the bits that its neighbour begins with: the two depend on each
other only where the first 16 leave the choice open, once in 2^16 times.

Source: Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

import torch
from torch import Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PER_CALL = 8  # elements served by one call
WORD = 0xFFFFFFFF


def round_keys(seed: int) -> list[tuple[int, int]]:
    """Return the two key words of each of the ten rounds."""
    return [((seed + i * KEY_STEPS[0]) & WORD, ((seed >> 32) + i * KEY_STEPS[1]) & WORD) for i in range(ROUNDS)]


def philox(first: int, calls: int, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the words (c0, c1, c2, c3) of the counters `first`, `first + 1`, ...: uint32 `(calls, 4)`.

    One round takes (c0, c1, c2, c3) to (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)). Here c0 and c2
    are the rows of `even`; c1 and c3 are the low halves of the rows of `odd`, the products of the round before, whose
    upper halves need not be cleared. Everything works in place: fetching memory again would cost more than the
    arithmetic.
    """
    counters = torch.arange(first, first + calls, device=device)
    even, odd = (torch.stack([half, torch.zeros_like(half)]) for half in (counters & WORD, counters >> 32))
    products = torch.empty_like(even)
    for key in torch.tensor(round_keys(seed), device=device).unsqueeze(-1):
        torch.mul(even[0], MULTIPLIERS[0], out=products[1])
        torch.mul(even[1], MULTIPLIERS[1], out=products[0])
        torch.bitwise_right_shift(products, 32, out=even)
        even.bitwise_xor_(odd).bitwise_xor_(key).bitwise_and_(WORD)
        odd, products = products, odd
    words = even.bitwise_or_(odd.bitwise_left_shift_(32))  # c0 and c1 in one row, c2 and c3 in the other
    return torch.stack(tuple(words), dim=1).view(torch.uint32)  # twenty times as fast as words.T.contiguous()


def random_bits(seed: int, first: int, n: int, device: torch.device | str = "cpu", bits: int = 16) -> Tensor:
    """Up to 31 random bits, int32 in 0 to 2^bits - 1, of each of the elements `first` to `first + n - 1`."""
    group, skip = divmod(first, PER_CALL)
    words = philox(group, (first + n - 1) // PER_CALL + 1 - group, seed, device)
    halves = words.view(torch.uint16).view(-1, 2).to(torch.int32)
    if bits > 16:
        halves = (halves << bits - 16) | (halves.flip(1) >> 32 - bits)
    elif bits < 16:
        halves >>= 16 - bits
    return halves.view(-1)[skip : skip + n]
