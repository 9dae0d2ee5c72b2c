"""One published figure beside ours, and the assumptions that more than one family of figures shares."""

from typing import NamedTuple

from hpcdl.cost.machines import FITTED_SHARE

USABLE = FITTED_SHARE  # the share of a line's or memory's rate that is reached
SPREAD = 0.05  # chosen to agree: see `page.ASSUMPTIONS`


class Row(NamedTuple):
    """A published figure and ours; `limit` is how far apart they may be, None where the model does not reach it.

    `fitted`: this figure fixed an assumption, so that it agrees by construction.
    """

    source: str
    what: str
    published: float
    predicted: float
    unit: str = ""
    limit: float | None = None
    fitted: bool = False

    @property
    def error(self) -> float:
        """Points between two percentages, else the relative difference in percent."""
        if self.unit == "%":
            return self.predicted - self.published
        return 100 * (self.predicted / self.published - 1)

    def cells(self) -> list[str]:
        """The row as text, for a table."""
        unit = "points" if self.unit == "%" else "%"
        limit = "not reached" if self.limit is None else f"{self.limit} {unit}" if self.limit else "exact"
        digits = max(3, len(f"{self.published:g}".replace(".", "").lstrip("0")))  # no fewer than were printed
        values = [f"{value:.{digits}g} {self.unit}".strip() for value in (self.published, self.predicted)]
        error = round(self.error, 1) + 0.0  # -0.0 is no error either
        return [self.source, self.what, *values, f"{error:+.1f} {unit}", "fitted" if self.fitted else limit]
