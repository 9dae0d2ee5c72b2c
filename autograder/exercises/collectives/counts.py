"""How many rounds and how many nodes there are."""


def log2_up(p: int) -> int:
    return (p - 1).bit_length()


def nodes(p: int, per_node: int) -> int:
    return -(-p // per_node)
