"""The tables of times and of promises that benchmarks print."""

import statistics

from rich.table import Table


def table_of_times(times: dict[str, list[float]], title: str, what: str = "competitor", beside: str = "") -> Table:
    """Tabulate minima and medians in milliseconds; with `beside`, a competitor, also ratios to its median."""
    table = Table(what, "min ms", "median ms", *[f"median / {beside}"] * bool(beside), title=title)
    for name, values in times.items():
        median = statistics.median(values)
        ratio = [f"{median / statistics.median(times[beside]):.3f}"] if beside else []
        table.add_row(name, f"{min(values) * 1e3:.2f}", f"{median * 1e3:.2f}", *ratio)
    return table


def table_of_promises(rows: list[dict], title: str = "Promises, of medians", without: str = "–") -> Table:
    """Tabulate rows of `what`, `promised` and `measured`, which is `without` if None.

    A promise is kept if it is measured at least, unless a row says itself whether it is `kept`.
    """
    table = Table("promise", "promised", "measured", "kept", title=title)
    for row in rows:
        promised, measured = row["promised"], row["measured"]
        if measured is None:
            shown = without, "–"
        else:
            shown = f"{measured:.3g}", "yes" if row.get("kept", measured >= promised) else "NO"
        table.add_row(row["what"], f"{promised:g}", *shown)
    return table
