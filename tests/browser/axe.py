"""Ask axe-core which rules of WCAG 2.1 AA, and which of its best practices, a page breaks."""

import importlib.util
from pathlib import Path

PACKAGE = "axe_playwright_python"  # brings axe-core, under the MPL 2.0
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
ASK = """([tags, without]) => axe.run({exclude: without}, {runOnly: tags, resultTypes: ["violations"]}).then(
    found => found.violations.flatMap(rule => rule.nodes.map(
        node => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary.replace(/\\\\s+/g, " ")}`)))"""


def source() -> str | None:
    """Return the script of axe-core; None if the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8") if found and found.origin else None


def violations(page, without: tuple[str, ...] = ()) -> list[str]:
    """Return a sentence for each element of a page that breaks a rule; `without` are selectors to leave out."""
    page.evaluate(source())
    return page.evaluate(ASK, [TAGS, list(without)])
