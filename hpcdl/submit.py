"""One file to hand in: the notebook, its hash, where it was made, and whether it runs and is complete."""

import hashlib
import json
import os
import platform
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import nbformat

import hpcdl
from hpcdl import designs
from hpcdl.cluster.ports import HeldPorts
from hpcdl.files import MOST_BYTES, MOST_FILES, MOST_TOGETHER, needed_near, written_whole
from hpcdl.moved import whereto
from hpcdl.report import decision_file

STUB = "raise NotImplementedError"
SECONDS_PER_CELL = 300


class SubmissionError(ValueError):
    """The file cannot be handed in: it is not a notebook of a lab."""


@dataclass
class OwnSubmission:
    """The record that the instructor finds next to the notebook."""

    lab: str
    notebook: str
    sha256: str
    open_exercises: list[str]
    moved: list[str] = field(default_factory=list)  # sentences about exercises that moved to another lab
    points: dict[str, float] = field(default_factory=dict)  # by exercise, from the notebook's checks
    verdicts: dict[str, str] = field(default_factory=dict)  # by exercise, in words
    along: list[str] = field(default_factory=list)  # files that the notebook needs, included in the archive
    left: list[str] = field(default_factory=list)  # needed files that are too large
    design: str = ""  # a schedule of the student's own next to the notebook, which is not in the archive
    error: str = ""  # of the first cell that failed
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    environment: dict[str, str] = field(default_factory=lambda: environment())

    @property
    def ready(self) -> bool:
        return not self.open_exercises and not self.error


def environment() -> dict[str, str]:
    """Return the versions that may explain a difference between two machines."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("torch", "numpy", "jupyterlab")}
    return {"hpcdl": hpcdl.__version__, "python": platform.python_version(), "system": platform.platform(), **packages}


def examine(
    path: Path, run: bool = True, step: Callable[[int, int], None] = lambda done, total: None, design: bool = False
) -> OwnSubmission:
    """Read the notebook at `path` and, with `run`, execute it top to bottom in a kernel of its own.

    With `design` the student's own schedule comes along, the file `hpcdl.designs.NAME` next to the notebook. Cells of
    open exercises are expected to fail and are skipped; `step(done, total)` is called for each cell. Raises
    SubmissionError if the file is not a notebook of a lab.
    """
    notebook, raw = read(path)
    found = OwnSubmission(
        notebook.metadata["hpcdl"]["lab"], path.name, hashlib.sha256(raw).hexdigest(), open_exercises(notebook)
    )
    found.along, found.left = files_along(path, raw)
    if found.lab == designs.LAB and (path.parent / designs.NAME).is_file():
        found.design = "" if design else designs.NAME
        found.along += [designs.NAME] * design
    found.moved = whereto([name for cell in notebook.cells if (name := exercise_of(cell))])
    if run:
        notebook, found.error = executed(notebook, path.parent, step)
        for about in checked(notebook):
            found.points[about["exercise"]], found.verdicts[about["exercise"]] = about["points"], about["verdict"]
    return found


def read(path: Path) -> tuple[nbformat.NotebookNode, bytes]:
    """Return the notebook and its bytes; raise SubmissionError if it is not one."""
    try:
        raw = path.read_bytes()
        notebook = nbformat.reads(raw.decode("utf-8"), as_version=4)
    except OSError as error:
        raise SubmissionError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # nbformat raises many kinds
        raise SubmissionError(f"{path} is no notebook ({error}); save it in JupyterLab and try again") from None
    if "lab" not in notebook.metadata.get("hpcdl", {}):
        raise SubmissionError(f"{path} is not a lab of this course; hand in the file that you opened, NN_slug.ipynb")
    return notebook, raw


def files_along(path: Path, raw: bytes) -> tuple[list[str], list[str]]:
    """Return the names of the needed files near the notebook and its decision file, and of files that are too large."""
    along, left, room = list[str](), list[str](), MOST_TOGETHER
    form = decision_file(path)
    written = [(form.name, form)] if form.is_file() else []
    for name, place in [*written, *needed_near(path, raw)]:
        size = place.stat().st_size
        fits = size <= min(MOST_BYTES, room) and len(along) < MOST_FILES
        (along if fits else left).append(name)
        room -= size if fits else 0
    return along, left


def open_exercises(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the exercises whose cell still holds the original stub."""
    named = [(exercise_of(cell), cell.source) for cell in notebook.cells]
    return [name.partition(".")[2] for name, source in named if name and STUB in source]


def exercise_of(cell: nbformat.NotebookNode) -> str | None:
    """Return the name of the exercise in the cell, "slug.name"; None for any other cell."""
    return cell.metadata.get("hpcdl", {}).get("exercise")


def checked(notebook: nbformat.NotebookNode) -> Iterator[dict]:
    """Return the result of each check in an executed notebook, from its output's metadata."""
    for out in (out for cell in notebook.cells for out in cell.get("outputs", [])):
        if isinstance(about := out.get("metadata", {}).get("hpcdl"), dict):
            yield about


def executed(
    notebook: nbformat.NotebookNode, folder: Path, step: Callable[[int, int], None]
) -> tuple[nbformat.NotebookNode, str]:
    """Run all cells in a fresh kernel; return the notebook and the first failure outside open exercises, or ""."""
    import nbclient

    notebook = nbformat.from_dict(notebook)  # outputs of this run are not the student's
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        allow_errors=True,
        kernel_name="python3",
        # It warns that sockets on this machine are not encrypted; a student cannot do anything about that.
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder.resolve())}},
        on_cell_executed=lambda cell, **_: step(code.index(cell) + 1, len(code)),
    )
    try:
        with warnings.catch_warnings(), HeldPorts() as held:
            warnings.simplefilter("ignore", DeprecationWarning)  # packages' warnings to their authors
            client.km = client.create_kernel_manager()
            held.for_kernel(client.km)
            client.execute(env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    except nbclient.exceptions.CellTimeoutError:
        return notebook, f"a cell ran for more than {SECONDS_PER_CELL} s"
    except nbclient.exceptions.DeadKernelError:
        return notebook, "the kernel died (out of memory?)"
    failures = [_failure(number, cell) for number, cell in enumerate(code, start=1)]
    return notebook, next(filter(None, failures), "")


def _failure(number: int, cell) -> str:
    for out in cell.get("outputs", []):
        if out.output_type == "error" and out.ename != "NotImplementedError":
            begin = cell.source.strip().splitlines()[0]
            return f"code cell {number} (`{begin[:60]}`): {out.ename}: {out.evalue[:300]}"
    return ""


def write(submission: OwnSubmission, notebook: Path, out: Path) -> None:
    """Write the zip file to hand in: the notebook as it was saved, the files that it needs, and submission.json."""
    content = {
        submission.notebook: notebook.read_bytes(),
        **{name: (notebook.parent / name).read_bytes() for name in submission.along},
        "submission.json": json.dumps(asdict(submission), indent=1).encode(),
    }
    with written_whole(out, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def say(submission: OwnSubmission) -> list[str]:
    """Tell the student what to know before handing in."""
    lines = [f"{name}: {verdict}" for name, verdict in submission.verdicts.items()]
    lines += [f"{sentence} Hand them in with that lab's notebook." for sentence in submission.moved]
    if submission.along:
        lines.append(f"These files next to the notebook come along: {', '.join(submission.along)}.")
    if submission.design:
        lines.append(f"Your own schedule in {submission.design} stays here; for the class's table, add --design.")
    if submission.left:
        lines.append(
            f"These files do not: {', '.join(submission.left)}. At most {MOST_FILES} come along, of {MOST_BYTES >> 20} "
            f"MiB each and {MOST_TOGETHER >> 20} MiB together."
        )
    if submission.points:
        lines.append(
            f"{sum(submission.points.values()):g} points by the checks of the notebook; the grade asks the same with "
            "other inputs."
        )
    if submission.open_exercises:
        lines.append(f"Still open: {', '.join(submission.open_exercises)}.")
    if submission.error:
        lines.append(f"It does not run top to bottom: {submission.error}")
    if submission.ready:
        right = "; the points say which are right" if submission.points else ""
        lines.append(f"It runs top to bottom, and every exercise has an answer{right}.")
    return lines
