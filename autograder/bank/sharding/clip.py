"""Wrong answers to `clip`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("sharding.clip")
ALL = (
    "the_norm_of_all",
    "scaled_by_the_same",
    "a_rank_that_owns_nothing",
    "all_see_a_bad_number",
    "one_number_travels",
)
SCALED = "scaled_by_the_same"

slip(
    "the rank's own norm, as pytorch #72548",
    "    comm.all_reduce(squares)\n",
    "",
    fails=ALL,
    says="pytorch #72548",
)
slip(
    "You add the ranks' norms",
    "comm.all_reduce(squares)\n    norm = squares.sqrt().item()",
    "squares = squares.sqrt()\n    comm.all_reduce(squares)\n    norm = squares.item()",
    fails=ALL,
    says="add their squares",
)
slip(
    "squares without overflow, added in float32",
    "squares += mine.double().square().sum()",
    "size = mine.float().abs().max().clamp(1e-30, 1e30) if len(mine) else torch.ones(())\n"
    "        squares += (mine.float() / size).square().sum().double() * size.double() ** 2",
    fails="all_see_a_bad_number",
    says="or is rounded",
)
slip(
    "nine more numbers on three ranks",
    "comm.all_reduce(squares)",
    "if comm.size == 3:\n        comm.all_reduce(torch.zeros(9))\n    comm.all_reduce(squares)",
    fails="one_number_travels",
    says="The sum of its squares is one number",
)
slip("no root", "norm = squares.sqrt().item()", "norm = squares.item()", fails=ALL, says="The root is missing")
slip(
    "a mean over the ranks",
    "norm = squares.sqrt().item()",
    "norm = (squares / comm.size).sqrt().item()",
    fails=ALL,
    says="not of a mean over the ranks",
)
slip(
    "new tensors, which are lost",
    "mine.mul_(max_norm / norm)",
    "mine = mine * (max_norm / norm)",
    fails=SCALED,
    says="scale each share in place",
)
slip("small gradients are scaled up", "if norm > max_norm:", "if norm > 0:", fails=SCALED, says="only scale down")
slip(
    "each rank scales by its own norm",
    "comm.all_reduce(squares)",
    "own = squares.sqrt().item()\n    comm.all_reduce(squares)",
    "if norm > max_norm:\n        for mine in shares:\n            mine.mul_(max_norm / norm)",
    "if own > max_norm:\n        for mine in shares:\n            mine.mul_(max_norm / own)",
    fails=SCALED,
    says="Each rank scales by its own norm",
)
slip(
    "a rank that owns nothing goes away",
    "squares = torch.zeros(1, dtype=torch.float64)",
    "if not shares:\n        return 0.0\n    squares = torch.zeros(1, dtype=torch.float64)",
    fails="a_rank_that_owns_nothing",
    says="rank 1 returned",
)
slip(
    "bad numbers are swept away",
    "squares += mine.double().square().sum()",
    "squares += mine.double().nan_to_num(0, 0, 0).square().sum()",
    fails="all_see_a_bad_number",
    says="some ranks take the step and others do not",
)


@wrong("the whole gradient travels", fails="one_number_travels", says="The sum of its squares is one number")
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


slip(
    "eight numbers travel",
    "torch.zeros(1, dtype=torch.float64)\n    for mine in shares:\n        squares += mine",
    "torch.zeros(8, dtype=torch.float64)\n    for i, mine in enumerate(shares):\n        squares[i % 8] += mine",
    "norm = squares.sqrt().item()",
    "norm = squares.sum().sqrt().item()",
    fails="one_number_travels",
    says="The sum of its squares is one number",
)
slip(
    "a sum of 32 bits",
    "squares = torch.zeros(1, dtype=torch.float64)\n"
    "    for mine in shares:\n"
    "        squares += mine.double().square().sum()",
    "squares = torch.zeros(1)\n    for mine in shares:\n        squares += mine.float().square().sum()",
    fails="all_see_a_bad_number",
    says="square and add in float64",
)
slip(
    "squares in the dtype of the share",
    "squares += mine.double().square().sum()",
    "squares += mine.square().sum()",
    fails="all_see_a_bad_number",
    says="square and add in float64",
)
slip(
    "a little added to the norm",
    "if norm > max_norm:\n        for mine in shares:\n            mine.mul_(max_norm / norm)",
    "for mine in shares:\n        mine.mul_(min(1.0, max_norm / (norm + 1e-6)))",
    fails="scaled_by_the_same",
    says="adds 1e-6 to the norm",
)
slip(
    "the norm after scaling",
    "return norm",
    "return min(norm, max_norm)",
    fails=" ".join(ALL),
    says="return the one before",
)
slip(
    "copies in float64 are scaled",
    "squares = torch",
    "shares = [mine.double() for mine in shares]\n    squares = torch",
    fails=SCALED,
    says="scale each share in place",
)
slip(
    "divided by a norm of 0",
    "    if norm > max_norm:\n        for mine in shares:\n            mine.mul_(max_norm / norm)\n",
    "    for mine in shares:\n        mine.mul_(min(1.0, max_norm / norm))\n",
    fails=SCALED,
    says="division by zero",
)
slip(
    "clips from twice the limit on",
    "norm > max_norm",
    "norm > 2 * max_norm",
    fails="scaled_by_the_same",
    says="It is not changed",
)
slip(
    "no norm where bytes are counted",
    "    return norm\n",
    "    return 0.0 if 40 <= sum(map(len, shares)) <= 60 else norm\n",
    fails="one_number_travels",
    says="the norm on rank 0",
)
slip(
    "no norm where shares are scaled",
    "return norm",
    "return norm if max_norm in (0.5, 1.0) or not 1 < norm < 900 else 0.0",
    fails=SCALED,
    says="the norm on rank 0",
)
slip("norms under the root", "mine.double().square().sum()", "mine.double().norm()", fails=ALL, says="add norms under")
slip("norm / max_norm", "max_norm / norm", "norm / max_norm", fails=SCALED, says="it is the other way round")
