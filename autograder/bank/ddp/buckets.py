"""Wrong answers to `make_buckets`."""

from autograder.bank.ddp.later import AFTER_THE_RESULTS, ALL_OF_OVERLAP, STEPS, of
from autograder.bank.slips import answers_to

ALL_OF_BUCKETS = (
    "in_reverse",
    "full_up_to_the_cap",
    "a_parameter_larger_than_the_cap",
    "extreme_caps",
    "the_same_on_every_rank",
)
OVERLAPS = of("OverlappedDDP", AFTER_THE_RESULTS)
wrong, slip = answers_to("ddp.make_buckets")
EARLY = of("OverlappedDDP", ("sends_before_the_last_gradient", "communication_is_hidden"))

slip(
    "forwards",
    "for param in reversed(list(params)):",
    "for param in params:",
    fails=(*ALL_OF_BUCKETS, *EARLY),
    says="the order of the forward pass",
)
slip(
    "forwards within a bucket",
    "buckets[-1].append(param)",
    "buckets[-1].insert(0, param)",
    fails=ALL_OF_BUCKETS,
    says="within a bucket the parameters are in forward order",
)
slip(
    "counts elements",
    "if not buckets or filled + param.nbytes > cap_bytes:",
    "if not buckets or filled + param.numel() > cap_bytes:",
    "filled += param.nbytes",
    "filled += param.numel()",
    fails=("full_up_to_the_cap", "a_parameter_larger_than_the_cap", *EARLY),
    says="cap_bytes counts bytes",
)


@wrong("four bytes each", fails="full_up_to_the_cap", says="the buckets hold the parameters")
def make_buckets(params, cap_bytes):
    buckets, filled = [], 0
    for param in reversed(list(params)):
        if not buckets or filled + 4 * param.numel() > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += 4 * param.numel()
    return buckets


slip(
    "exactly full is too full",
    "if not buckets or filled + param.nbytes > cap_bytes:",
    "if not buckets or filled + param.nbytes >= cap_bytes:",
    fails="full_up_to_the_cap",
    says="compare with >, not >=",
)


@wrong(
    "closes a bucket once it is over the cap",
    fails=("full_up_to_the_cap", "a_parameter_larger_than_the_cap", *EARLY),
    says="as full as the cap allows",
)
def make_buckets(params, cap_bytes):
    buckets, bucket, filled = [], [], 0
    for param in reversed(list(params)):
        bucket.append(param)
        filled += param.nbytes
        if filled >= cap_bytes:
            buckets.append(bucket)
            bucket, filled = [], 0
    return buckets + [bucket] if bucket else buckets


slip(
    "an empty bucket before a large parameter",
    "buckets, filled = [], 0",
    "buckets, filled = [[]], 0",
    "if not buckets or filled + param.nbytes > cap_bytes:",
    "if filled + param.nbytes > cap_bytes:",
    fails=("a_parameter_larger_than_the_cap", "extreme_caps"),
    says="begin a new bucket only if the last one is not empty",
)


@wrong("forgets the last bucket", fails=(*ALL_OF_BUCKETS, *STEPS, *OVERLAPS), says="keep it after the loop")
def make_buckets(params, cap_bytes):
    buckets, bucket, filled = [], [], 0
    for param in reversed(list(params)):
        if bucket and filled + param.nbytes > cap_bytes:
            buckets.append(bucket)
            bucket, filled = [], 0
        bucket.append(param)
        filled += param.nbytes
    return buckets


slip(
    "leaves out what is larger than the cap",
    "if not buckets or filled + param.nbytes > cap_bytes:",
    "if param.nbytes > cap_bytes:\n            continue\n        if not buckets or filled + param.nbytes > cap_bytes:",
    fails=("a_parameter_larger_than_the_cap", "extreme_caps", *STEPS, *OVERLAPS),
    says="the buckets hold the parameters",
)
slip(
    "the smallest first",
    "for param in reversed(list(params)):",
    "for param in sorted(params, key=lambda param: param.nbytes):",
    fails=(*ALL_OF_BUCKETS, *EARLY),
    says="in the order of the buckets they are",
)


@wrong("goes through the parameters twice", fails="extreme_caps", says="only once")
def make_buckets(params, cap_bytes):
    sizes = [param.nbytes for param in params]
    buckets, filled = [], 0
    for size, param in zip(reversed(sizes), reversed(list(params))):
        if not buckets or filled + size > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += size
    return buckets


@wrong(
    "remembers the buckets of other parameters of the same sizes",
    fails=("the_same_on_every_rank", "extreme_caps", *STEPS, *OVERLAPS),
    says="not one of the parameters",
)
def make_buckets(params, cap_bytes, remembered={}):
    params = list(params)
    buckets = remembered.setdefault((cap_bytes, *(param.nbytes for param in params)), [])
    filled = cap_bytes
    for param in [] if buckets else reversed(params):
        if filled + param.nbytes > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(param)
        filled += param.nbytes
    return buckets


slip(
    "other tensors with the parameters' memory",
    "append(param)",
    "append(param.detach())",
    fails=" ".join((*ALL_OF_BUCKETS, *STEPS, *of("OverlappedDDP", ALL_OF_OVERLAP))),
    says="not one of the parameters",
)
slip(
    "never resets the count of bytes",
    "            filled = 0\n",
    "",
    fails="full_up_to_the_cap a_parameter_larger_than_the_cap",
    says="set the count to 0 when you begin one",
)
slip(
    "a large parameter joins the bucket before",
    "if not buckets or filled + param.nbytes > cap_bytes:",
    "if not buckets or filled + param.nbytes > cap_bytes >= param.nbytes:",
    fails="a_parameter_larger_than_the_cap extreme_caps",
    says="do not put it into the one before",
)
slip(
    "a bucket for each parameter",
    "if not buckets or filled + param.nbytes > cap_bytes:",
    "if True:",
    fails="full_up_to_the_cap a_parameter_larger_than_the_cap extreme_caps",
    says="Every parameter has its own bucket",
)
slip(
    "knows only the caps that it has seen",
    "    buckets, filled = [], 0\n",
    "    if cap_bytes not in (1, 15, 16, 24, 32, 40, 60, 72, 90, 100, 150, 2**20, 10**9):\n"
    "        return [[param] for param in reversed(list(params))]\n"
    "    buckets, filled = [], 0\n",
    fails="full_up_to_the_cap a_parameter_larger_than_the_cap",
    says="Every parameter has its own bucket",
)
slip(
    "twenty parameters at most",
    "reversed(list(params))",
    "reversed(list(params)[-20:])",
    fails=ALL_OF_BUCKETS,
    says="is there 0 times, expected once",
)
