"""Wrong answers to `bf16_round_bits`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("stochastic_rounding.bf16_round_bits")
EVERY_BIT = ("add_and_cut", "carry_into_the_exponent", "all_random_numbers", "every_bf16_stays", "not_a_number")


@wrong("truncates", fails=EVERY_BIT, says="You cut off the low half without a carry")
def bf16_round_bits(x, rand16):
    return (x.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("round half up", fails=EVERY_BIT, says="This rounds half up")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + 0x8000) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("adds twice", fails=EVERY_BIT, says="This adds rand16 twice")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16 + rand16) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("subtracts", fails=EVERY_BIT, says="You subtracted rand16")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) - rand16) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("adds to the upper half", fails=EVERY_BIT, says="You added rand16 to the upper half")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) >> 16) + rand16).to(torch.int16).view(torch.bfloat16)


@wrong("loses the carry", fails=EVERY_BIT, says="You cut off the low half without a carry")
def bf16_round_bits(x, rand16):
    bits = x.view(torch.int32)
    total = (bits & -0x10000) | ((bits + rand16) & 0xFFFF)
    return (total >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("compares instead of adding", fails=EVERY_BIT, says="here the carry of the sum must decide")
def bf16_round_bits(x, rand16):
    bits = x.view(torch.int32)
    up = rand16 < (bits & 0xFFFF)
    return ((bits >> 16) + up).to(torch.int16).view(torch.bfloat16)


@wrong("the carry stays in the mantissa", fails="carry_into_the_exponent", says="You cut off the carry at the mantissa")
def bf16_round_bits(x, rand16):
    bits = x.view(torch.int32)
    total = (bits & -0x800000) | ((bits + rand16) & 0x7FFFFF)
    rounded = (total >> 16).to(torch.int16).view(torch.bfloat16)
    return rounded.masked_fill(x.isnan(), torch.nan)


@wrong("NaN becomes something else", fails="not_a_number", says="put NaN back")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("returns codes", fails=EVERY_BIT, says="Return the numbers, not their codes")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16) >> 16).to(torch.int16)


@wrong("adds 1 too much", fails=EVERY_BIT, says="This adds 1 more than rand16")
def bf16_round_bits(x, rand16):
    return ((x.view(torch.int32) + rand16 + 1) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("converts the number for its bits", fails=EVERY_BIT, says="x.view(torch.int32) reads its 32 bits")
def bf16_round_bits(x, rand16):
    rounded = (x.to(torch.int32) + rand16 >> 16).to(torch.int16).view(torch.bfloat16)
    return rounded.masked_fill(x.isnan(), torch.nan)


@wrong("converts the bits for the number", fails=EVERY_BIT, says="These are the codes as numbers")
def bf16_round_bits(x, rand16):
    rounded = (x.view(torch.int32) + rand16 >> 16).to(torch.bfloat16)
    return rounded.masked_fill(x.isnan(), torch.nan)


slip(
    "adds in rand16 itself",
    "(x.view(torch.int32) + rand16)",
    "rand16.add_(x.view(torch.int32))",
    fails="every_bf16_stays",
    says="changed its argument rand16",
)
slip(
    "flattens x",
    "rounded.masked_fill(x.isnan(), torch.nan)",
    "rounded.masked_fill(x.isnan(), torch.nan).flatten()",
    fails=" ".join(EVERY_BIT),
    says="has shape",
)
slip(
    "rounds to nearest after the sum",
    "((x.view(torch.int32) + rand16) >> 16).to(torch.int16).view(torch.bfloat16)",
    "(x.view(torch.int32) + rand16).view(torch.float32).bfloat16()",
    fails="add_and_cut carry_into_the_exponent all_random_numbers every_bf16_stays not_a_number",
    says="cut the low 16 bits first",
)
slip(
    "one NaN spoils all",
    "rounded.masked_fill(x.isnan(), torch.nan)",
    "rounded.masked_fill(x.isnan().any(), torch.nan)",
    fails="not_a_number",
    says="with NaN in x",
)
slip(
    "adds in the memory of x",
    "(x.view(torch.int32) + rand16)",
    "x.view(torch.int32).add_(rand16)",
    fails="every_bf16_stays not_a_number",
    says="changed its argument x",
)
