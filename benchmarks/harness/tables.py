"""The table of promises that benchmarks print."""

from rich.table import Table


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
