"""Lab 00 is answered with torch: its point is which line of torch's does what is asked."""

ONE_LINE = "a line or three of torch, which is the answer itself"

LIBRARY: dict[str, str] = {}
NOT_IN_LIBRARY = {
    "pick": ONE_LINE,
    "by_channel": ONE_LINE,
    "stretch": ONE_LINE,
    "safe_ratio": ONE_LINE,
    "sums": ONE_LINE,
    "windows": ONE_LINE,
    "average_in_place": "an all-reduce of hpcdl's is over ranks; this is a loop over a list",
    "cut": "hpcdl.numerics.rounding rounds, it does not cut",
    "grads": "hpcdl.ddp has hooks of its own, that no function hands out",
    "epochs": "what hpcdl draws are batches of its data sets; here the order is handed in",
}
FRAMEWORKS: dict[str, str] = {}
NOT_IN_FRAMEWORKS = dict.fromkeys(NOT_IN_LIBRARY, ONE_LINE)
