"""Wrong answers to `cost`."""

import math

from autograder.bank.slips import answers_to

wrong, slip = answers_to("collectives.cost")


@wrong("the ring sends all of x", fails=("naive_ring_and_tree", "server_and_nodes"), says="A ring sends chunks")
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    fold = 2 * message if p > 2**k else 0.0
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (p - 1) * message,
        "ring": 2 * (p - 1) * message,
        "tree": 2 * (p - 1).bit_length() * message,
        "recursive_doubling": k * message + fold,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * nbytes * beta + fold,
    }[algorithm]


@wrong("rounds that are not whole", fails=("naive_ring_and_tree", "server_and_nodes"), says="Round log₂ p up")
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    fold = 2 * message if p > 2**k else 0.0
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (p - 1) * message,
        "ring": 2 * (p - 1) * (alpha + nbytes / p * beta),
        "tree": 2 * math.log2(p) * message,
        "recursive_doubling": k * message + fold,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * nbytes * beta + fold,
    }[algorithm]


@wrong("forgets the ranks beyond a power of two", fails="doubling_for_any_p", says="they add two messages of nbytes")
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (p - 1) * message,
        "ring": 2 * (p - 1) * (alpha + nbytes / p * beta),
        "tree": 2 * (p - 1).bit_length() * message,
        "recursive_doubling": k * message,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * nbytes * beta,
    }[algorithm]


@wrong("the lecture's parameter server", fails="server_and_nodes", says="the latencies of all workers overlap")
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + nbytes * beta, p.bit_length() - 1
    fold = 2 * message if p > 2**k else 0.0
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (alpha + (p - 1) * nbytes * beta) if p > 1 else 0.0,
        "ring": 2 * (p - 1) * (alpha + nbytes / p * beta),
        "tree": 2 * (p - 1).bit_length() * message,
        "recursive_doubling": k * message + fold,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * nbytes * beta + fold,
    }[algorithm]


@wrong(
    "counts bits",
    fails=("naive_ring_and_tree", "doubling_for_powers_of_two", "doubling_for_any_p", "server_and_nodes"),
    says="no factor 4 for floats, 8 for bits",
)
def cost(algorithm, p, nbytes, alpha, beta):
    message, k = alpha + 8 * nbytes * beta, p.bit_length() - 1
    fold = 2 * message if p > 2**k else 0.0
    if algorithm == "hierarchical":
        return cost("tree", min(p, 4), nbytes, alpha, beta) + cost("ring", -(-p // 4), nbytes, alpha, beta)
    return {
        "naive": 2 * (p - 1) * message,
        "parameter_server": 2 * (p - 1) * message,
        "ring": 2 * (p - 1) * (alpha + 8 * nbytes / p * beta),
        "tree": 2 * (p - 1).bit_length() * message,
        "recursive_doubling": k * message + fold,
        "rabenseifner": 2 * k * alpha + 2 * (1 - 2**-k) * 8 * nbytes * beta + fold,
    }[algorithm]


slip(
    "one rank sends to itself",
    "return 2 * (p - 1) * message",
    "return 2 * max(p - 1, 1) * message",
    fails="alone",
    says='cost("naive", 1, ...)',
)
slip(
    "a tree's rounds rounded down",
    "2 * (p - 1).bit_length() * message",
    "2 * (p.bit_length() - 1) * message",
    fails="naive_ring_and_tree server_and_nodes",
    says="If you round down",
)
slip(
    "rounds rounded up instead of a fold",
    "return k * message + folding",
    "return (p - 1).bit_length() * message",
    fails="doubling_for_any_p",
    says="rounds are too few",
)
slip(
    "a tree's rounds rounded to the nearest number",
    "2 * (p - 1).bit_length() * message",
    "2 * round(math.log2(p)) * message",
    fails="naive_ring_and_tree",
    says="round up",
)
