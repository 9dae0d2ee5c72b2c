"""Results as JUnit XML, for systems that read test reports: a suite per student and lab, a case per check."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from autograder import feedback
from autograder.grading.store import write_text
from autograder.results import CheckResult, LabResult

from .load import for_student

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(found: list[LabResult]) -> str:
    """Return the report, as students may see it."""
    suites = ET.Element("testsuites")
    for result in map(for_student, found):
        _suite(suites, result)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def write(found: list[LabResult], out: Path) -> None:
    write_text(out, document(found))


def _suite(suites: ET.Element, result: LabResult) -> None:
    checks = [(exercise, check) for exercise in result.exercises for check in exercise.checks]
    failures = sum(check.status in ("failed", "not_done") for _, check in checks)
    errors = int(result.status != "graded")
    counts = {"tests": len(checks) + errors, "failures": failures, "errors": errors}
    counts["skipped"] = sum(check.status == "skipped" for _, check in checks)
    suite = _add(suites, "testsuite", name=f"{result.student}: {result.lab}", time=f"{result.seconds:.3f}", **counts)
    properties = _add(suite, "properties")
    _add(properties, "property", name="score", value=f"{result.score:g}")
    _add(properties, "property", name="max_score", value=f"{result.max_score:g}")
    if errors:
        _add(_add(suite, "testcase", classname=result.lab, name="submission"), "error", message=result.message)
    for exercise, check in checks:
        case = _add(suite, "testcase", classname=exercise.id, name=check.name, time=f"{check.seconds:.4f}")
        _outcome(case, check)


def _outcome(case: ET.Element, check: CheckResult) -> None:
    said = " ".join(feedback.sentences(check))
    if check.status == "skipped":
        _add(case, "skipped", message=said)
    elif not check.passed:
        failure = _add(case, "failure", type=check.kind or check.status, message=said)
        failure.text = _clean("\n".join(f"{label}: {value}" for label, value in feedback.facts(check)))


def _add(parent: ET.Element, tag: str, **attributes) -> ET.Element:
    return ET.SubElement(parent, tag, {name: _clean(str(value)) for name, value in attributes.items()})


def _clean(text: str) -> str:
    """Remove the characters that XML cannot represent."""
    return _NOT_XML.sub("\ufffd", text)
