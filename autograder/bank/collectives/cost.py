"""Wrong answers to `cost`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("collectives.cost")

slip(
    "the ring sends all of x",
    "(alpha + nbytes / p * beta)",
    "message",
    fails=("naive_ring_and_tree", "server_and_nodes"),
    says="A ring sends chunks",
)
slip(
    "rounds that are not whole",
    "2 * (p - 1).bit_length() * message",
    "2 * math.log2(p) * message",
    fails=("naive_ring_and_tree", "server_and_nodes"),
    says="Round log₂ p up",
)
slip(
    "forgets the ranks beyond a power of two",
    "folding = 2 * message if p > q else 0.0",
    "folding = 0.0",
    fails="doubling_for_any_p",
    says="they add two messages of nbytes",
)
slip(
    "the lecture's parameter server",
    'case "naive" | "parameter_server":',
    'case "parameter_server":\n'
    "            return 2 * (alpha + (p - 1) * nbytes * beta) if p > 1 else 0.0\n"
    '        case "naive":',
    fails="server_and_nodes",
    says="the latencies of all workers overlap",
)
slip(
    "counts bits",
    "alpha + nbytes * beta, p",
    "alpha + 8 * nbytes * beta, p",
    "nbytes / p",
    "8 * nbytes / p",
    "(q - 1) / q * nbytes",
    "(q - 1) / q * 8 * nbytes",
    fails=("naive_ring_and_tree", "doubling_for_powers_of_two", "doubling_for_any_p", "server_and_nodes"),
    says="no factor 4 for floats, 8 for bits",
)
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


@wrong(
    "the number of other ranks",
    fails=(
        "alone",
        "naive_ring_and_tree",
        "doubling_for_powers_of_two",
        "doubling_for_any_p",
        "server_and_nodes",
    ),
    says="need one or two messages",
)
def cost(algorithm, p, nbytes, alpha, beta):
    return p - 1.0


slip(
    "knows only the numbers of ranks that it has seen",
    "    match algorithm:",
    "    assert p in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31, 32)\n    match algorithm:",
    fails="naive_ring_and_tree doubling_for_powers_of_two doubling_for_any_p server_and_nodes",
    says="AssertionError",
)
slip(
    "six nodes at most",
    'cost("ring", -(-p // 4), nbytes',
    'cost("ring", min(6, -(-p // 4)), nbytes',
    fails="server_and_nodes",
    says="the same for any number of ranks",
)
