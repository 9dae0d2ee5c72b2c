"""Pages whose commands are run: each ```sh block is followed by a ```text block with what it printed.

    python docs/transcript.py docs/instructors.md            # run the commands, write what they print
    python docs/transcript.py docs/instructors.md --check    # fail where they print something else

The commands of a page run in one shell, in the order of the page, in a folder that holds a clone `course` of this
repository as git has it.
"""

import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEP = re.compile(r"(?P<before>```sh\n(?P<code>.*?)```\n\n```text\n)(?P<said>.*?)(?P<after>```)", re.DOTALL)
END = "@@ end of step @@"
SECONDS = 1500  # a busy machine takes several times the usual three minutes


def run(page: str) -> list[str]:
    """What each step of the page prints, errors included."""
    steps = [match["code"] for match in STEP.finditer(page)]
    script = "\n".join(f"{{ {code.strip()}\n}} 2>&1; echo '{END}'" for code in steps)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", ROOT, Path(folder, "course")], check=True)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(folder, "course")),
            "COLUMNS": "100",
            "HPCDL_SECRET": "the same inputs of checks in every run",
        }
        ended = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    said = ended.stdout.split(f"{END}\n")[:-1]
    if len(said) != len(steps):
        raise SystemExit(f"step {len(said) + 1} of {len(steps)} did not end:\n{ended.stdout[-2000:]}{ended.stderr}")
    return [steady(text) for text in said]


def steady(text: str) -> str:
    """Without progress bars, trailing blanks, seconds and times of files, which differ from run to run."""
    lines = [line.rstrip() for line in text.splitlines() if "━" not in line or "/" not in line]
    said = re.sub(r"\b\d+\.\d+ s\b", "… s", "\n".join(lines)) + "\n"
    return re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b", "YYYY-MM-DD HH:MM", said)


def main(path: Path, check: bool) -> int:
    page = path.read_text(encoding="utf-8")
    outputs = iter(run(page))
    now = STEP.sub(lambda match: match["before"] + next(outputs) + match["after"], page)
    if not check:
        path.write_text(now, encoding="utf-8")
    elif now != page:
        sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), now.splitlines(True), "page", "now"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--check" in sys.argv))
