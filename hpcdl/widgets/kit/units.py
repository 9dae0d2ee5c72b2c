"""Numbers with units, as one says them: three digits and no powers of ten."""

import re

GAP = re.compile(r"(?<=\d) (?=(?:[nµm]?s|bytes|[KMGT]B|[KMG]b/s|images/s|%)(?!\w))")
NO_BREAK = "\N{NO-BREAK SPACE}"


def number(value: float) -> str:
    """Three significant digits, written out: 0.0012, 12.3, 1,020."""
    if abs(value) >= 99.95:
        digits = max(0, len(f"{abs(value):.0f}") - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{float(f'{value:.3g}'):.12f}".rstrip("0").rstrip(".")


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str:
    unit, size = next((one for one in units if abs(value) >= 0.9995 * one[1]), units[-1])
    return f"{number(value / size)} {unit}"


def seconds(value: float) -> str:
    """Return a time: 12 ns, 3.4 µs, 20 ms, 200 s."""
    return _scaled(value, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))


def nbytes(value: float, per: str = "") -> str:
    """Return a size, or with `per="/s"` a rate: 100 bytes, 12 KB, 1 TB/s."""
    names = ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("bytes", 1.0)
    return _scaled(value, tuple((name + per, size) for name, size in names))


def joined(sentence: str) -> str:
    """Return the sentence with a space that cannot end a line between each number and its unit."""
    return GAP.sub(NO_BREAK, sentence)


def raised(power: int) -> str:
    """Return the digits of a power, as exponents are written: ⁻⁹."""
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
