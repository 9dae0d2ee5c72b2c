"""Wrong answers to `random16` and `bf16_round_bits`."""

import torch

from autograder.bank.own_stack.later import AFTER_THE_LOSS
from autograder.bank.slips import answers_to

wrong, slip = answers_to("own_stack.rounding")
NOISE = ("the_noise", "as_int32", "the_same_every_time")
BITS = ("add_and_cut", "carry_into_the_exponent", "all_random_numbers", "every_bf16_stays", "not_a_number")

slip(
    "the seed is not mixed",
    "return (mix(mix(torch.tensor(seed)) ^ torch.arange(n)) >> 16).to(torch.int32)",
    "return (mix(torch.tensor(seed) ^ torch.arange(n)) >> 16).to(torch.int32)",
    fails=(*NOISE, *AFTER_THE_LOSS),
    says="The seed was not mixed",
)
slip(
    "words are not cut",
    "x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF\n        x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF",
    "x = (x ^ x >> 16) * 0x7FEB352D\n        x = (x ^ x >> 15) * 0x846CA68B",
    fails=(*NOISE, *AFTER_THE_LOSS),
    says="Cut each product to 32 bits",
)
slip(
    "the lower half",
    "return (mix(mix(torch.tensor(seed)) ^ torch.arange(n)) >> 16).to(torch.int32)",
    "return (mix(mix(torch.tensor(seed)) ^ torch.arange(n)) & 0xFFFF).to(torch.int32)",
    fails=(*NOISE, *AFTER_THE_LOSS),
    says="The lower half was kept",
)
slip(
    "plus for xor",
    "return (mix(mix(torch.tensor(seed)) ^ torch.arange(n)) >> 16).to(torch.int32)",
    "return (mix(mix(torch.tensor(seed)) + torch.arange(n) & 0xFFFFFFFF) >> 16).to(torch.int32)",
    fails=(*NOISE, *AFTER_THE_LOSS),
    says="Seed and i are added here",
)
slip(
    "shifts of 16 everywhere",
    "x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF",
    "x = (x ^ x >> 16) * 0x846CA68B & 0xFFFFFFFF",
    fails=(*NOISE, *AFTER_THE_LOSS),
    says=">> 15 stands between the two products",
)
slip(
    "int64",
    "return (mix(mix(torch.tensor(seed)) ^ torch.arange(n)) >> 16).to(torch.int32)",
    "return mix(mix(torch.tensor(seed)) ^ torch.arange(n)) >> 16",
    fails=("as_int32",),
    says="int64",
)


@wrong("torch's generator", fails=(*NOISE, *AFTER_THE_LOSS), says="numbers differ")
def random16(seed, n):
    torch.manual_seed(seed)
    return torch.randint(65536, (n,), dtype=torch.int32)


@wrong("to nearest", fails=("add_and_cut", *BITS[1:3], *BITS[3:], *AFTER_THE_LOSS), says="You cut off the low half")
def bf16_round_bits(x, rand16):
    return (x.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("converts instead of reading", fails=(*BITS, *AFTER_THE_LOSS), says=".view(torch.int32) reads its 32 bits")
def bf16_round_bits(x, rand16):
    return ((x.to(torch.int32) + rand16) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("NaN is forgotten", fails=("not_a_number",), says="put NaN back")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16) >> 16).to(torch.int16).view(torch.bfloat16)


slip(
    "rand16 in place",
    "((x.view(torch.int32) + rand16) >> 16)",
    "(rand16.add_(x.view(torch.int32)) >> 16)",
    fails="every_bf16_stays",
    says="changed its argument rand16",
)
