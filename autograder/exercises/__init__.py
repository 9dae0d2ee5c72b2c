"""Every lab's exercises and checks: a package for each slug, which declares its `lab`, a module for each exercise."""

import importlib

LABS: tuple[str, ...] = (
    "tensors",
    "calculus",
    "gradient_descent",
    "perceptron",
    "backprop",
    "convolution",
    "stochastic_rounding",
    "ddp",
    "collectives",
    "consistency",
    "hogwild",
    "attention",
    "model_parallel",
    "sharding",
    "machines",
    "scaling",
    "frameworks",
    "own_stack",
)  # in the order of the course


def load(slug: str):
    """The `Lab` of that slug, with its checks; KeyError names the labs there are."""
    if slug not in LABS:
        raise KeyError(f"there is no lab {slug!r}; the labs are {', '.join(LABS)}")
    lab = importlib.import_module(f"autograder.exercises.{slug}").lab
    if lab.number is None:
        lab.number = LABS.index(slug)
    return lab
