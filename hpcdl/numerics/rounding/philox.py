"""Random bits without a state: Philox4x32-10, in plain torch.

Philox turns a counter (128 bits) and a key (64 bits) into 128 random bits by ten rounds of multiplying and mixing.
Nothing is carried from one call to the next: any element's bits can be had alone, by any thread, in any order.

Element number p takes 16 of the 128 bits of one call. Its key is the seed, low 32 bits first; its counter is (g mod
2^32, g div 2^32, 0, 0) with g = p // 8; of the four words that come back p has word (p mod 8) // 2, the low half where
p is even, the high half where it is odd. In little-endian memory the bits of the elements thus lie one after another.

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
    """The two key words of each of the ten rounds."""
    return [((seed + i * KEY_STEPS[0]) & WORD, ((seed >> 32) + i * KEY_STEPS[1]) & WORD) for i in range(ROUNDS)]


def philox(counters: Tensor, seed: int) -> Tensor:
    """The four words `(4, n)` of the counters (c, 0, 0) for each c of `counters` `(n,)`; int64, 32 bits each.

    One round takes (c0, c1, c2, c3) to (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)). Here c0 and c2
    are the rows of `even`, and c1 and c3 the low halves of the rows of `product`: so that the five operations of a
    round each run over both, in place.
    """
    multipliers = torch.tensor(MULTIPLIERS, device=counters.device)[:, None]
    even = torch.stack([counters & WORD, torch.zeros_like(counters)])
    odd = torch.stack([counters >> 32, torch.zeros_like(counters)])
    for k0, k1 in round_keys(seed):
        product = (even * multipliers).flip(0)
        even = product >> 32
        even ^= odd
        even ^= torch.tensor([[k0], [k1]], device=counters.device)
        even &= WORD
        odd = product
    return torch.stack([even[0], odd[0] & WORD, even[1], odd[1] & WORD])


def random_bits(seed: int, first: int, n: int, device: torch.device | str = "cpu") -> Tensor:
    """The 16 random bits, int32 in 0 to 65535, of the elements `first` to `first + n - 1`."""
    group, skip = divmod(first, PER_CALL)
    words = philox(torch.arange(group, (first + n - 1) // PER_CALL + 1, device=device), seed)
    halves = torch.stack([words & 0xFFFF, words >> 16], dim=1)  # (word, half, group)
    return halves.permute(2, 0, 1).reshape(-1)[skip : skip + n].to(torch.int32)
