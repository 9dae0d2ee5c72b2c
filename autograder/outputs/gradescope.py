"""Gradescope: a bundle to upload as the autograder of an assignment, and the results.json that it writes there.

Formats: Gradescope's autograder specifications (gradescope/autograder_samples, `docs/specs.md`).
"""

import argparse
import json
import math
import secrets
import shlex
import sys
import zipfile
from pathlib import Path

from autograder import exercises, feedback
from autograder.grading.store import write_text
from autograder.results import CheckResult, LabResult
from autograder.sessions.canaries import WallError
from hpcdl.files import written_whole

from .load import bounded, for_student

SETUP = """#!/usr/bin/env bash
# Runs once, when Gradescope builds the image of this autograder.
set -euo pipefail
apt-get update && apt-get install -y python3 python3-venv
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "This autograder needs Python 3.11 or later: choose a newer base image in Gradescope." >&2; exit 1; }
python3 -m venv /autograder/venv
cd /autograder/source
/autograder/venv/bin/pip install --no-cache-dir REQUIREMENT
"""

# The content of results.json until there is a result: whatever ends this script, the student gets a sentence.
RUN = """#!/usr/bin/env bash
# Runs for each submission.
root=${AUTOGRADER_ROOT:-/autograder}
mkdir -p "$root/results"
cat > "$root/results/.crashed" <<'END'
CRASHED
END
mv "$root/results/.crashed" "$root/results/results.json"
export HPCDL_SECRET=$(cat "$root/source/secret")
exec "$root/venv/bin/python" -m autograder.outputs.gradescope "$root" --lab LAB
"""


def crashed(max_score: float) -> dict:
    """Return the result to show until there is a real one."""
    said = "The autograder did not finish. This is no verdict on your work: tell your instructor."
    test = {"name": "autograder", "score": 0.0, "max_score": max_score, "status": "failed", "output": said}
    return {"score": 0.0, "output": said, "stdout_visibility": "hidden", "tests": [test]}


def bundle(slug: str, out: Path, requirement: str) -> None:
    """Write the zip file to upload. `requirement` is what pip installs: a version, or a wheel that is put in."""
    lab, wheel = exercises.load(slug), Path(requirement)
    installed = f"./{wheel.name}" if wheel.is_file() else requirement
    files = {
        "setup.sh": SETUP.replace("REQUIREMENT", shlex.quote(installed)),
        "run_autograder": RUN.replace("LAB", slug).replace("CRASHED", json.dumps(crashed(lab.points), indent=1)),
        "secret": secrets.token_hex(32),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(out, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = (0o600 if name == "secret" else 0o755) << 16
            archive.writestr(info, text)
        if wheel.is_file():
            archive.write(wheel, wheel.name)


def results_json(result: LabResult) -> dict:
    """Return a result for Gradescope: a test for each check, with what a student may see of it."""
    bounded(result)
    shown = for_student(result)
    tests = [
        _test(exercise.name, check, f"{i}.{j}")
        for i, exercise in enumerate(shown.exercises, start=1)
        for j, check in enumerate(exercise.checks, start=1)
    ]
    said = shown.message if shown.status == "graded" else f"It could not be graded: {shown.message}."
    return {
        "score": shown.score,
        "execution_time": math.ceil(shown.seconds),
        "output": "\n".join(filter(None, [said, *shown.notes])),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests or [{"name": "submission", "score": 0.0, "max_score": shown.max_score, "output": said}],
    }


def _test(exercise: str, check: CheckResult, number: str) -> dict:
    lines = feedback.sentences(check) + [f"{label}: {value}" for label, value in feedback.facts(check)]
    return {
        "name": f"{exercise}: {check.title}",
        "number": number,
        "score": check.points,
        "max_score": check.max_points,
        "status": "passed" if check.passed else "failed",
        "output": "" if check.passed else "\n".join(lines),
        "output_format": "text",
        "visibility": "visible",
        "tags": [exercise],
    }


def grade(root: Path, slug: str) -> LabResult:
    """Grade the files that Gradescope put into `root/submission`; of several notebooks the newest counts."""
    from autograder.grading import batch, grades, layouts, seeds  # on first use: a bundle is written without them

    student = _student(root / "submission_metadata.json")
    found = layouts.submissions(root / "submission")
    paths = [each.path for each in found if each.path]
    todo = [layouts.Submission(student, path, beside=layouts.neighbours(path)) for path in paths] or [
        layouts.Submission(student, None, f"there is no notebook (.ipynb) in the submission; {layouts.HAND_IN}")
    ]
    secret = seeds.course_secret(root / "results")
    ((result),) = grades.newest_of_each(list(batch.grade_all(todo, secret, exercises.load(slug))))
    return result


def _student(metadata: Path) -> str:
    """Return the submitter's number, which seeds the checks' inputs."""
    try:
        return str(json.loads(metadata.read_text(encoding="utf-8"))["users"][0]["id"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return "student"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m autograder.outputs.gradescope", description=__doc__.splitlines()[0]
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("--lab", required=True, choices=exercises.LABS)
    given = parser.parse_args(arguments)
    try:
        content = results_json(grade(given.root, given.lab))
    except WallError as error:  # the student's result already says that the autograder did not finish
        sys.exit(f"Nothing was graded: {error}.")
    write_text(given.root / "results" / "results.json", json.dumps(content, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
