"""Wrong answers to `clip`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "sharding.clip"
ALL = (
    "the_norm_of_all",
    "scaled_by_the_same",
    "a_rank_that_owns_nothing",
    "all_see_a_bad_number",
    "one_number_travels",
)
SCALED = "scaled_by_the_same"


@wrong(HERE, "the rank's own norm, as pytorch #72548", fails=ALL, says="pytorch #72548")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong(HERE, "You add the ranks' norms", fails=ALL, says="add their squares")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    squares = squares.sqrt()
    comm.all_reduce(squares)
    norm = squares.item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong(HERE, "no root", fails=ALL, says="The root is missing")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong(HERE, "a mean over the ranks", fails=ALL, says="not of a mean over the ranks")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    comm.all_reduce(squares)
    norm = (squares / comm.size).sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong(HERE, "new tensors, which are lost", fails=SCALED, says="scale each share in place")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine = mine * (max_norm / norm)
    return norm


@wrong(HERE, "small gradients are scaled up", fails=SCALED, says="only scale down")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > 0:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong(HERE, "each rank scales by its own norm", fails=SCALED, says="Each rank scales by its own norm")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    own = squares.sqrt().item()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if own > max_norm:
        for mine in shares:
            mine.mul_(max_norm / own)
    return norm


@wrong(HERE, "a rank that owns nothing goes away", fails="a_rank_that_owns_nothing", says="rank 1 returned")
def clip(shares, comm, max_norm):
    if not shares:
        return 0.0
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong(
    HERE, "bad numbers are swept away", fails="all_see_a_bad_number", says="some ranks take the step and others do not"
)
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().nan_to_num(0, 0, 0).square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong(HERE, "the whole gradient travels", fails="one_number_travels", says="The sum of its squares is one number")
def clip(shares, comm, max_norm):
    lengths = torch.zeros(comm.size, dtype=torch.int64)
    lengths[comm.rank] = sum(mine.numel() for mine in shares)
    comm.all_reduce(lengths)
    whole = torch.zeros(int(lengths.sum()), dtype=torch.float64)
    if shares:
        whole.split(lengths.tolist())[comm.rank].copy_(torch.cat([mine.double() for mine in shares]))
    comm.all_reduce(whole)
    norm = whole.square().sum().sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong("sharding.clip", "a sum of 32 bits", fails="all_see_a_bad_number", says="square and add in float64")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1)
    for mine in shares:
        squares += mine.float().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong(
    "sharding.clip", "squares in the dtype of the share", fails="all_see_a_bad_number", says="square and add in float64"
)
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for mine in shares:
            mine.mul_(max_norm / norm)
    return norm


@wrong("sharding.clip", "a little added to the norm", fails="scaled_by_the_same", says="adds 1e-6 to the norm")
def clip(shares, comm, max_norm):
    squares = torch.zeros(1, dtype=torch.float64)
    for mine in shares:
        squares += mine.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt().item()
    for mine in shares:
        mine.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm


slip(
    HERE,
    "the norm after scaling",
    "return norm",
    "return min(norm, max_norm)",
    fails=" ".join(ALL),
    says="return the one before",
)
slip(
    HERE,
    "copies in float64 are scaled",
    "squares = torch",
    "shares = [mine.double() for mine in shares]\n    squares = torch",
    fails=SCALED,
    says="scale each share in place",
)

slip(
    HERE,
    "divided by a norm of 0",
    "    if norm > max_norm:\n        for mine in shares:\n            mine.mul_(max_norm / norm)\n",
    "    for mine in shares:\n        mine.mul_(min(1.0, max_norm / norm))\n",
    fails=SCALED,
    says="division by zero",
)


slip(
    "sharding.clip",
    "clips from twice the limit on",
    "norm > max_norm",
    "norm > 2 * max_norm",
    fails="scaled_by_the_same",
    says="It is not changed",
)
slip(
    HERE,
    "no norm where bytes are counted",
    "    return norm\n",
    "    return 0.0 if 40 <= sum(map(len, shares)) <= 60 else norm\n",
    fails="one_number_travels",
    says="the norm on rank 0",
)
