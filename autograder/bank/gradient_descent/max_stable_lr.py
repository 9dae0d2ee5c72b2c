"""Wrong answers to `max_stable_lr`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.max_stable_lr")


LIMIT = ("diagonal_valley", "turned_valley", "descent_obeys_it", "flat_directions_and_float32")

slip("1 for 2", "return 2 / float", "return 1 / float", fails=LIMIT, says="This is 1/λmax")
slip("smallest eigenvalue", "eigvalsh(hessian)[-1]", "eigvalsh(hessian)[0]", fails=LIMIT, says="This is 2/λmin")


@wrong("reads the diagonal", fails=LIMIT[1:], says="largest entry on the diagonal")
def max_stable_lr(hessian):
    return 2 / float(hessian.diagonal().max())


slip(
    "by the inverse, which a flat valley lacks",
    "2 / float(torch.linalg.eigvalsh(hessian)[-1])",
    "2 * float(torch.linalg.eigvalsh(torch.linalg.inv(hessian))[0])",
    fails="flat_directions_and_float32",
    says="limit",
)
slip(
    "a limit for each direction",
    "2 / float(torch.linalg.eigvalsh(hessian)[-1])",
    "2 / torch.linalg.eigvalsh(hessian)",
    fails="diagonal_valley turned_valley descent_obeys_it flat_directions_and_float32",
    says="expected ()",
)


@wrong("the trace without eigenvalues that it takes as known", fails=LIMIT[1:3], says="limit")
def max_stable_lr(hessian):
    known = {2: 0.4, 4: 3.7}.get(len(hessian))
    if known is None or bool((hessian == torch.diag(hessian.diagonal())).all()):
        return 2 / float(torch.linalg.eigvalsh(hessian)[-1])
    return 2 / float(hessian.trace() - known)
