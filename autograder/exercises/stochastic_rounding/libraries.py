"""What the answers of several exercises may not call."""

from autograder.authoring import Rules

ROUNDING = tuple(f"hpcdl.numerics.rounding.{name}" for name in ("neighbours", "round_nearest", "stochastic_round"))
OWN: Rules = {
    "forbid": ROUNDING,
    "instead": "Here you write what it does: ε, floor and a comparison. Compare with it afterwards.",
}
