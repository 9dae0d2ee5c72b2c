"""Parameters in buckets: how they should be grouped, and how the student's code groups them."""

from autograder import checks, show
from hpcdl.nn.awkward import MODELS


def grouped(sizes: list[int], cap: int) -> list[list[int]]:
    """Indices of tensors of so many bytes in buckets: in reverse, each as full as `cap` lets it be."""
    groups: list[list[int]] = []
    filled = cap + 1
    for i in reversed(range(len(sizes))):
        if filled + sizes[i] > cap:
            groups.append([])
            filled = 0
        groups[-1].append(i)
        filled += sizes[i]
    return groups


def bucketed(student, params: list, cap: int) -> list[list[int]]:
    """The student's buckets as indices of `params`."""
    call = f"make_buckets(params, {cap})"
    got = student.make_buckets(list(params), cap)
    wanted = "a list of buckets, each a list of the parameters themselves"
    checks.that(type(got) in (list, tuple), f"{call} is {show.an(show.type_name(got))}, expected {wanted}.")
    places = {id(param): i for i, param in enumerate(params)}
    for k, bucket in enumerate(got):
        checks.that(
            type(bucket) in (list, tuple), f"{call}[{k}] is {show.an(show.type_name(bucket))}, expected {wanted}."
        )
        strange = [param for param in bucket if id(param) not in places]
        checks.that(
            not strange,
            f"{call}[{k}] holds {show.show(strange[0]) if strange else ''}, which is not one of the parameters.",
            expected=wanted,
        )
    return [[places[id(param)] for param in bucket] for bucket in got]


def bucketed_giants(student, numels: list[int], cap: int) -> list[list[int]]:
    """The student's buckets of parameters that exist by their shapes only: no text or file has as many bytes."""
    return student.ranks("make_buckets", 1, lambda _: (numels, cap), harness="giants").results[0]


def bytes_of_buckets(student, name: str, cap: int) -> list[int]:
    """The bytes of the student's own buckets for a network: whether they are right is for `make_buckets` to say."""
    params = [param.detach() for param in MODELS[name]().parameters() if param.requires_grad]
    return [sum(params[i].nbytes for i in bucket) for bucket in bucketed(student, params, cap)]
