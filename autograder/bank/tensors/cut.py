"""Wrong answers to `cut`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("tensors.cut")


@wrong(
    "converts for looking at the bits",
    fails=("the_low_half_is_zero", "special_numbers", "leaves_x_alone"),
    says="has converted the number",
)
def cut(x):
    return (x.to(torch.int32) >> 16 << 16).view(torch.float32)


@wrong(
    "converts on the way back",
    fails=("the_low_half_is_zero", "special_numbers", "leaves_x_alone"),
    says="At the end you converted the whole number",
)
def cut(x):
    return (x.view(torch.int32) >> 16 << 16).to(torch.float32)


@wrong(
    "returns the whole numbers",
    fails=("the_low_half_is_zero", "special_numbers", "leaves_x_alone"),
    says="read them as floats again",
)
def cut(x):
    return x.view(torch.int32) >> 16 << 16


@wrong(
    "rounds to the nearest bfloat16",
    fails=("the_low_half_is_zero", "special_numbers", "leaves_x_alone"),
    says="bfloat16 rounds to the nearest",
)
def cut(x):
    return x.to(torch.bfloat16).to(torch.float32)


@wrong(
    "shifts, and does not shift back",
    fails=("the_low_half_is_zero", "special_numbers", "leaves_x_alone"),
    says="move it up again",
)
def cut(x):
    return (x.view(torch.int32) >> 16).view(torch.float32)


@wrong(
    "keeps the other half",
    fails=("the_low_half_is_zero", "special_numbers", "leaves_x_alone"),
    says="You kept the low half",
)
def cut(x):
    return (x.view(torch.int32) & 0xFFFF).view(torch.float32)


@wrong(
    "cuts the digits after the point",
    fails=("the_low_half_is_zero", "special_numbers", "leaves_x_alone"),
    says="You cut the numbers to whole numbers",
)
def cut(x):
    return torch.trunc(x)


@wrong("cuts the bits of x itself", fails="leaves_x_alone", says="Your function has cut x itself")
def cut(x):
    bits = x.view(torch.int32)
    bits &= -65536
    return x.clone()


slip("not for a single number", "(x.view(", "(x[:].view(", fails="special_numbers", says="0-dim")
slip(
    "one nan spoils all",
    "return ",
    "if bool(x.isnan().any()):\n        return torch.full_like(x, torch.nan)\n    return ",
    fails="special_numbers",
    says="cut(x)[",
)
