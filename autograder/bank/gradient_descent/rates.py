"""Wrong answers to `rates`."""

import math

from autograder.bank.slips import answers_to

wrong, slip = answers_to("gradient_descent.rates")


ALL = ("fewer_iterations", "as_many_updates", "waits_for_the_slowest", "each_at_its_own_pace")
SYNCHRONOUS = ("fewer_iterations", "waits_for_the_slowest")
ASYNCHRONOUS = ("as_many_updates", "each_at_its_own_pace")


@wrong("rounds down", fails=ALL, says="Round up")
def rates(error, c, seconds, rule):
    gradients, n = (c / error) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = int(gradients / n)
        return iterations, n * iterations, iterations * max(seconds)
    return int(gradients), int(gradients), int(gradients) / sum(1 / s for s in seconds)


@wrong("forgets the square", fails=ALL, says="The square is missing")
def rates(error, c, seconds, rule):
    gradients, n = c / error, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / n)
        return iterations, n * iterations, iterations * max(seconds)
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) / sum(1 / s for s in seconds)


@wrong("only the root of N", fails=SYNCHRONOUS, says="N workers need 1/N of the iterations")
def rates(error, c, seconds, rule):
    gradients, n = (c / error) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / math.sqrt(n))
        return iterations, n * iterations, iterations * max(seconds)
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) / sum(1 / s for s in seconds)


@wrong("the same for both rules", fails=ASYNCHRONOUS, says="the rate has no N")
def rates(error, c, seconds, rule):
    iterations = math.ceil((c / error) ** 2 / len(seconds))
    return iterations, len(seconds) * iterations, iterations * max(seconds)


@wrong("no N in either rule", fails=SYNCHRONOUS, says="That is one worker's number")
def rates(error, c, seconds, rule):
    gradients = math.ceil((c / error) ** 2)
    if rule == "synchronous":
        return gradients, gradients, gradients * max(seconds)
    return gradients, gradients, gradients / sum(1 / s for s in seconds)


@wrong("upside down", fails=ALL, says="upside down")
def rates(error, c, seconds, rule):
    gradients, n = (error / c) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / n)
        return iterations, n * iterations, iterations * max(seconds)
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) / sum(1 / s for s in seconds)


@wrong("counts one gradient in an iteration", fails=SYNCHRONOUS, says="Each iteration has a gradient of every worker")
def rates(error, c, seconds, rule):
    gradients, n = (c / error) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / n)
        return iterations, iterations, iterations * max(seconds)
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) / sum(1 / s for s in seconds)


@wrong("waits for the mean", fails="waits_for_the_slowest", says="not for the mean")
def rates(error, c, seconds, rule):
    gradients, n = (c / error) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / n)
        return iterations, n * iterations, iterations * sum(seconds) / n
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) / sum(1 / s for s in seconds)


@wrong("one after another", fails="waits_for_the_slowest", says="not one after another")
def rates(error, c, seconds, rule):
    gradients, n = (c / error) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / n)
        return iterations, n * iterations, iterations * sum(seconds)
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) / sum(1 / s for s in seconds)


@wrong("waits for the fastest", fails="waits_for_the_slowest", says="not the fastest")
def rates(error, c, seconds, rule):
    gradients, n = (c / error) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / n)
        return iterations, n * iterations, iterations * min(seconds)
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) / sum(1 / s for s in seconds)


@wrong("waits although it should not", fails="each_at_its_own_pace", says="No worker waits")
def rates(error, c, seconds, rule):
    gradients, n = (c / error) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / n)
        return iterations, n * iterations, iterations * max(seconds)
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) * max(seconds) / n


@wrong("the mean of the seconds", fails="each_at_its_own_pace", says="Add up the updates a second")
def rates(error, c, seconds, rule):
    gradients, n = (c / error) ** 2, len(seconds)
    if rule == "synchronous":
        iterations = math.ceil(gradients / n)
        return iterations, n * iterations, iterations * max(seconds)
    return math.ceil(gradients), math.ceil(gradients), math.ceil(gradients) * (sum(seconds) / n) / n


slip(
    "one more where the error is equal",
    *("math.ceil(gradients / len(seconds))", "math.floor(gradients / len(seconds)) + 1"),
    *("math.ceil(gradients)", "math.floor(gradients) + 1"),
    fails=" ".join(ALL),
    says="an error that is equal is small enough",
)
slip(
    "no iteration where the error is above c",
    "gradients = (c / error) ** 2",
    "gradients = (c / error) ** 2 if error <= c else 0",
    fails="each_at_its_own_pace",
    says="At least one update",
)
