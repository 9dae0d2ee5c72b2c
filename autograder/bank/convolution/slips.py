"""The lab's own solutions with a few characters changed."""

from autograder.bank import slips

SLICE = "x[:, :, i : i + stride * (P - 1) + 1 : stride, j : j + stride * (Q - 1) + 1 : stride]"


def slip(exercise: str, mistake: str, *changes: str, fails: str, says: str) -> None:
    """Put the solution with `changes` into the bank, as `slips.slip` does."""
    slips.slip(f"convolution.{exercise}", mistake, *changes, fails=fails, says=says)
