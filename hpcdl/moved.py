"""Old and new names of exercises that moved to another lab; work done under an old name still counts.

Names are "slug.exercise"; guesses move with their lab and have names of the same form. An exercise that combined two
has become two.
"""

MOVED: dict[str, tuple[str, ...]] = {
    "consistency.hogwild": ("hogwild.hogwild",),
    "consistency.downpour": ("hogwild.downpour",),
    "consistency.sandblaster": ("hogwild.two_loop", "hogwild.finish"),
    "consistency.adam": ("hogwild.adam",),
    "model_parallel.ring_attention": ("attention.ring_attention",),
    "model_parallel.moe": ("attention.moe",),
    "scaling.work": ("machines.work",),
    "scaling.utilization": ("machines.utilization",),
    "scaling.zeros": ("machines.zeros",),  # a guess
}


def now(name: str) -> tuple[str, ...]:
    """Return the current names for a name in an old notebook or journal; most are unchanged.

    >>> now("ddp.average")
    ('ddp.average',)
    """
    return MOVED.get(name, (name,))


def is_now(old: str, name: str) -> bool:
    """Return whether work done under the name `old` counts for `name`."""
    return old == name or name in now(old)


def whereto(names: list[str]) -> list[str]:
    """Return a sentence for each lab to which some of these exercises have moved.

    >>> whereto(["ddp.average"])
    []
    """
    homes: dict[str, list[str]] = {}
    for name in names:
        for new in now(name) if name in MOVED else ():
            homes.setdefault(new.partition(".")[0], []).append(new.partition(".")[2])
    return [f"The lab {slug} now has {', '.join(dict.fromkeys(found))}." for slug, found in homes.items()]
