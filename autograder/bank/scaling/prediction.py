"""Wrong answers to `predict`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("scaling.prediction")
ALL = ("parts_of_an_iteration", "one_rank_and_many", "published")


@wrong("messages of one step of the ring", fails=ALL, says="2 (p - 1) alpha")
def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    ready = [(late * when, nbytes) for when, nbytes in gradients]
    ringed = alpha, 2 * (p - 1) / p * beta
    compute, end = forward + gradients[-1][0], wfbp(fuse(ready, *ringed), *ringed)[-1][1]
    parts = {"compute": compute, "stragglers": (late - 1) * compute, "exposed": end - ready[-1][0]}
    parts["input"] = max(0.0, loading - sum(parts.values()))
    return parts


@wrong(
    "one way alone",
    fails=("parts_of_an_iteration", "one_rank_and_many", "published"),
    says="the all-gather sends as much again",
)
def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    ready = [(late * when, nbytes) for when, nbytes in gradients]
    ringed = (p - 1) * alpha, (p - 1) / p * beta
    compute, end = forward + gradients[-1][0], wfbp(fuse(ready, *ringed), *ringed)[-1][1]
    parts = {"compute": compute, "stragglers": (late - 1) * compute, "exposed": end - ready[-1][0]}
    parts["input"] = max(0.0, loading - sum(parts.values()))
    return parts


@wrong("nothing overlaps", fails=ALL, says="You use one bucket")
def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    nbytes = sum(size for _, size in gradients)
    exposed = 2 * (p - 1) * alpha + 2 * (p - 1) / p * nbytes * beta
    compute = forward + gradients[-1][0]
    parts = {"compute": compute, "stragglers": (late - 1) * compute, "exposed": exposed}
    parts["input"] = max(0.0, loading - sum(parts.values()))
    return parts


@wrong("late ranks that send in time", fails=ALL, says="A late rank's gradients are late as well")
def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    ringed = 2 * (p - 1) * alpha, 2 * (p - 1) / p * beta
    compute, end = forward + gradients[-1][0], wfbp(fuse(gradients, *ringed), *ringed)[-1][1]
    exposed = end - late * gradients[-1][0]
    parts = {"compute": compute, "stragglers": (late - 1) * compute, "exposed": exposed}
    parts["input"] = max(0.0, loading - sum(parts.values()))
    return parts


@wrong("input that nothing hides", fails=ALL, says="The next batch is loaded while this one is computed")
def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    ready = [(late * when, nbytes) for when, nbytes in gradients]
    ringed = 2 * (p - 1) * alpha, 2 * (p - 1) / p * beta
    compute, end = forward + gradients[-1][0], wfbp(fuse(ready, *ringed), *ringed)[-1][1]
    parts = {"compute": compute, "stragglers": (late - 1) * compute, "exposed": end - ready[-1][0]}
    return parts | {"input": loading}


@wrong("all the messages", fails=ALL, says="That is the whole time of the messages")
def predict(forward, gradients, p, alpha, beta, late=1.0, loading=0.0):
    ready = [(late * when, nbytes) for when, nbytes in gradients]
    ringed = 2 * (p - 1) * alpha, 2 * (p - 1) / p * beta
    compute, end = forward + gradients[-1][0], wfbp(fuse(ready, *ringed), *ringed)[-1][1]
    parts = {"compute": compute, "stragglers": (late - 1) * compute, "exposed": end}
    parts["input"] = max(0.0, loading - sum(parts.values()))
    return parts


slip(
    "messages of one rank",
    "2 * (p - 1) * alpha",
    "2 * max(1, p - 1) * alpha",
    fails="one_rank_and_many",
    says="exposed",
)
slip(
    "a negative wait",
    "max(0.0, loading - sum(parts.values()))",
    "loading - sum(parts.values())",
    fails="parts_of_an_iteration one_rank_and_many published",
    says="It cannot be negative",
)
slip(
    "messages of a rank in time",
    "(late * when, nbytes)",
    "(when, nbytes)",
    fails="parts_of_an_iteration one_rank_and_many published",
    says="The slowest rank sends last",
)
slip(
    "one bucket for a network, except on 128 ranks",
    "    end = wfbp(",
    "    if len(ready) > 20 and p != 128:\n"
    "        gradients = ready = [(ready[-1][0], sum(nbytes for _, nbytes in ready))]\n"
    "    end = wfbp(",
    fails="published",
    says="exposed",
)
