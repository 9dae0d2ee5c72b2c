"""Wrong answers to `best_algorithm` and `crossover`."""

import math

from autograder.bank.slips import answers_to

wrong, slip = answers_to("collectives.best_algorithm")


NOT_BEST = ("the_cheapest", "changes_at_the_crossover")


@wrong("the maximum", fails=NOT_BEST, says="This is the most expensive")
def best_algorithm(p, nbytes, alpha, beta, cost):
    names = ("naive", "ring", "tree", "recursive_doubling", "rabenseifner", "parameter_server", "hierarchical")
    return max(names, key=lambda name: cost(name, p, nbytes, alpha, beta))


@wrong("bytes alone", fails=NOT_BEST, says="It sends the fewest bytes")
def best_algorithm(p, nbytes, alpha, beta, cost):
    names = ("rabenseifner", "ring", "naive", "tree", "recursive_doubling", "parameter_server", "hierarchical")
    return min(names, key=lambda name: cost(name, p, nbytes, 0.0, beta))


@wrong(
    "a minus too many",
    fails=("crossover_in_bytes", "some_never_cross", "changes_at_the_crossover"),
    says="a size is positive",
)
def crossover(first, second, p, alpha, beta, cost):
    messages = cost(first, p, 0, alpha, beta) - cost(second, p, 0, alpha, beta)
    per_byte = cost(first, p, 1, 0, beta) - cost(second, p, 1, 0, beta)
    return messages / per_byte if messages * per_byte < 0 or per_byte else math.inf


@wrong("divides by no difference", fails="some_never_cross", says="ZeroDivisionError")
def crossover(first, second, p, alpha, beta, cost):
    messages = cost(first, p, 0, alpha, beta) - cost(second, p, 0, alpha, beta)
    per_byte = cost(second, p, 1, 0, beta) - cost(first, p, 1, 0, beta)
    return messages / per_byte


@wrong("meets below zero", fails="some_never_cross", says="do not meet at any size above 0")
def crossover(first, second, p, alpha, beta, cost):
    messages = cost(first, p, 0, alpha, beta) - cost(second, p, 0, alpha, beta)
    per_byte = cost(second, p, 1, 0, beta) - cost(first, p, 1, 0, beta)
    return messages / per_byte if per_byte else math.inf


slip(
    "seconds instead of bytes",
    "1, 0.0, beta)",
    "1, 0.0, 1.0)",
    fails="crossover_in_bytes some_never_cross changes_at_the_crossover",
    says="Divide by beta, too",
)
slip(
    "leaves out the last algorithm",
    "min(ALGORITHMS,",
    "min(ALGORITHMS[:-1],",
    fails=" ".join(NOT_BEST),
    says="for each of ALGORITHMS",
)
slip(
    "calls its own cost",
    "lambda name: cost(",
    "lambda name: globals()['cost'](",
    fails=" ".join(NOT_BEST),
    says="Call the argument `cost`",
)
