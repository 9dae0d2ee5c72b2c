"""Errors of predictions on public figures left out of the fit, by kind of run: `hpcdl.cost.reached.KINDS`.

Constants are fitted without the figure (`runs.leave_out`; the spread without one of the figures that determined it).
Errors of one source are similar, so n sources count as n errors. With the errors' root mean square e, the interval of a
further run is t e sqrt(1 + 1/n) either way, with Student's t for 95 % and n degrees of freedom, or as wide as the worst
error.
"""

from math import sqrt

from scipy.special import stdtrit

from hpcdl.cost.published import rows, runs
from hpcdl.cost.published.data_parallel import goyal, horovod
from hpcdl.cost.published.runs import leave_out
from hpcdl.cost.reached import GUESS

SPREADS = tuple(n / 100 for n in range(11))


def errors() -> dict[str, dict[tuple[str, str], float]]:
    """Map kind to (source, what) to error, with each figure left out of the fit."""
    found = leave_out(runs())
    result: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows():
        if row.kind and not row.fitted:
            key = row.source, row.what
            result.setdefault(row.kind, {})[key] = found.get(key, row.relative)
    result["measured"] |= _without_spread()
    return result


def intervals() -> dict[str, tuple[int, float, float]]:
    """Map kind to the number of figures, their root mean square error, and the half width of the interval."""
    result = {}
    for kind, each in errors().items():
        error = sqrt(sum(value**2 for value in each.values()) / len(each))
        worst, n = max(abs(value) for value in each.values()), len({source for source, _ in each})
        width = GUESS if n == 1 else max(worst, float(stdtrit(n, 0.975)) * error * sqrt(1 + 1 / n))
        result[kind] = len(each), error, width
    return result


def _without_spread() -> dict[tuple[str, str], float]:
    """Predict the four efficiencies that determined the spread, each with the best spread for the other three."""
    tables = {spread: [goyal(spread)[0], *horovod(spread)] for spread in SPREADS}
    result = {}
    for left in range(4):
        misses = {
            spread: sum(abs(row.relative) for i, row in enumerate(table) if i != left)
            for spread, table in tables.items()
        }
        row = tables[min(misses, key=lambda spread: misses[spread])][left]
        result[row.source, row.what] = row.relative
    return result
