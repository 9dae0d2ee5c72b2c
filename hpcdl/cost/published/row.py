"""One published figure and our prediction, and the assumptions shared by several families of figures."""

from math import exp, log
from typing import NamedTuple

from hpcdl.cost.machines import FITTED_SHARE
from hpcdl.cost.reached import KINDS

USABLE = FITTED_SHARE  # the share of a line's or memory's rate that is reached
SPREAD = 0.05  # chosen to agree: see `page.ASSUMPTIONS`


class Row(NamedTuple):
    """A published figure and ours; `limit` is the allowed difference, None if the model does not reach it.

    `fitted`: this figure fixed an assumption, so it agrees by construction. A figure with a `kind` of run has that
    kind's interval instead of a limit.
    """

    source: str
    what: str
    published: float
    predicted: float
    unit: str = ""
    limit: float | None = None
    fitted: bool = False
    kind: str = ""

    @property
    def error(self) -> float:
        """Return the difference of two percentages in points, otherwise the relative difference in percent."""
        if self.unit == "%":
            return self.predicted - self.published
        return 100 * (self.predicted / self.published - 1)

    @property
    def relative(self) -> float:
        """Return the logarithm of predicted over published."""
        return log(self.predicted / self.published)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the interval in which the published figure is expected, by its kind of run; None for arithmetic."""
        if not self.kind:
            return None
        width = KINDS[self.kind].width
        return self.predicted * exp(-width), self.predicted * exp(width)

    @property
    def inside(self) -> bool:
        """Return whether the published figure is in the interval or, without one, within the limit."""
        if self.interval:
            return self.interval[0] <= self.published <= self.interval[1]
        return self.limit is not None and abs(self.error) <= self.limit + 1e-9

    def cells(self, cause: str = "") -> list[str]:
        """Return the row as text, for a table."""
        unit = "points" if self.unit == "%" else "%"
        digits = max(3, len(f"{self.published:g}".replace(".", "").lstrip("0")))  # no fewer than in print
        values = [f"{value:.{digits}g} {self.unit}".strip() for value in (self.published, self.predicted)]
        error = round(self.error, 1) + 0.0  # avoid -0.0
        return [self.source, self.what, *values, self._expected(digits, unit), f"{error:+.1f} {unit}", cause]

    def _expected(self, digits: int, unit: str) -> str:
        if self.fitted:
            return "fitted"
        if self.interval:
            low, high = (f"{value:.{digits}g}" for value in self.interval)
            return f"{low} to {high}"
        return "not reached" if self.limit is None else f"± {self.limit} {unit}" if self.limit else "exact"
