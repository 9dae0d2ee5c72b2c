"""From a lab's source to its notebooks: `labs/source/NN_slug.py` -> `labs/NN_slug.ipynb`, and README.md -> map.ipynb.

It also writes `autograder/exercises/SLUG/allowed.json`, the names in hpcdl that exercises leave open (`allowed`).
Authors edit only the source. The student notebook has each solution replaced by `raise NotImplementedError`; the solved
notebook keeps it, and exists only in memory, for tests and for the reference answers of the autograder. Both are
deterministic to the byte: cell ids derive from the slug and the position.

    python -m autograder.authors.build            write the notebooks of all labs, and their other files
    python -m autograder.authors.build --check    fail if a committed notebook differs from its source
"""

import re
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import nbformat

from autograder import exercises
from hpcdl import labs

from . import allowed
from .headings import BuildError, expanded

LABS_DIR = Path(__file__).resolve().parents[2] / "labs"
BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
STUB = "raise NotImplementedError"
CHECK_CALL = re.compile(r"""^check\(\s*["']([\w.]+)["']\s*\)""", re.MULTILINE)
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WHERE = "**Where am I?** Click into the cell below and press Shift+Enter: your points, what is left, and your guesses."
CELL_MARK = re.compile(r"^# %%(\s|$)")


@dataclass
class SourceBlock:
    """One cell of the source: its first line (from 1), its kind and its lines below the `# %%` mark."""

    line: int
    markdown: bool
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def is_exercise(self) -> bool:
        return any(line.strip() == BEGIN for line in self.lines)


def source_path(slug: str) -> Path:
    """Return the source of the lab `slug`; FileNotFoundError lists the labs that exist."""
    found = [path for path in sources() if slug_of(path) == slug]
    if not found:
        require_clone()
        known = ", ".join(slug_of(path) for path in sources()) or "none"
        raise FileNotFoundError(f"no source labs/source/NN_{slug}.py; the labs with a source are: {known}")
    return found[0]


def sources() -> list[Path]:
    """Return the sources of all labs, in the order of the course."""
    return sorted((LABS_DIR / "source").glob("[0-9][0-9]_*.py"))


def require_clone() -> None:
    """Raise FileNotFoundError if the labs' sources are not next to the package, because it is installed."""
    if not (LABS_DIR / "source").is_dir():
        raise FileNotFoundError(
            "the sources of the labs are not installed: run this in a clone of the course's repository, with the "
            "autograder installed from there (pip install -e .)"
        )


def slug_of(path: Path) -> str:
    return path.stem.split("_", 1)[1]


def solved(slug: str) -> nbformat.NotebookNode:
    """Return the notebook with its solutions, for tests; never committed."""
    return _notebook(source_path(slug), keep_solutions=True)


def student(slug: str) -> nbformat.NotebookNode:
    """Return the notebook for students: no solutions, no outputs."""
    return _notebook(source_path(slug), keep_solutions=False)


def code(slug: str) -> list[str]:
    """Return the code cells of the lab with its solutions, for graders, without authors' tools."""
    return [_without_marks(block.text) for block in _blocks(source_path(slug)) if not block.markdown]


def references(slug: str) -> dict[str, str]:
    """Return the source of each exercise's cell with its solution, by exercise name."""
    return {name: _without_marks(text) for name, text in marked(slug).items()}


def marked(slug: str) -> dict[str, str]:
    """Return these sources with the marks around the solution."""
    path = source_path(slug)
    return {name: block.text for name, block in _exercise_blocks(path, _blocks(path)).items()}


def write(notebook: nbformat.NotebookNode) -> str:
    """Return the notebook's text, the same bytes for the same content."""
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


# ---------------------------------------------------------------------------------------------- reading


def _blocks(path: Path) -> list[SourceBlock]:
    """Return the cells of a py:percent source with their line numbers, for errors and for exercises."""
    blocks, current = [], None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if CELL_MARK.match(line):
            current = SourceBlock(number, "[markdown]" in line, [])
            blocks.append(current)
        elif current is not None:
            current.lines.append(line)
    for block in blocks:
        _check_marks(path, block)
    return blocks


def _check_marks(path: Path, block: SourceBlock) -> None:
    opened = 0
    for number, line in enumerate(block.lines, start=block.line + 1):
        mark = line.strip()
        if mark == BEGIN:
            if opened:
                raise BuildError(path, number, f"`{BEGIN}` inside the solution opened at line {opened}; close it first")
            opened = number
        elif mark == END:
            if not opened:
                raise BuildError(path, number, f"`{END}` without `{BEGIN}` above it in the same cell")
            opened = 0
        elif BEGIN[2:] in line or END[2:] in line:
            raise BuildError(path, number, f"write the mark alone on its line, exactly `{BEGIN}` or `{END}`")
    if opened:
        raise BuildError(path, opened, f"`{BEGIN}` is never closed in its cell; add `{END}` after the solution")


def _exercise_blocks(path: Path, blocks: list[SourceBlock]) -> dict[str, SourceBlock]:
    """Return each exercise cell by exercise name, which is in the `check(...)` of the next code cell."""
    slug, lab = slug_of(path), _lab(path)
    found: dict[str, SourceBlock] = {}
    code = [block for block in blocks if not block.markdown]
    for block, following in zip_longest(code, code[1:]):
        if not block.is_exercise:
            continue
        call = CHECK_CALL.search(following.text) if following else None
        if call is None:
            raise BuildError(
                path, block.line, 'exercise cell without checks: the next code cell must be `check("...")`'
            )
        line, exercise_id = following.line + 1 + following.text[: call.start()].count("\n"), call.group(1)
        given_slug, _, name = exercise_id.partition(".")
        if given_slug != slug:
            raise BuildError(path, line, f'check("{exercise_id}") names another lab; this one is {slug!r}')
        if name in found:
            raise BuildError(path, line, f"exercise {name!r} stands twice, first at line {found[name].line}")
        if lab is None or name not in lab.exercises or not lab.exercises[name].checks:
            raise BuildError(path, line, f"exercise {name!r} has no checks in autograder/exercises/{slug}")
        found[name] = block
    missing = [name for name in (lab.exercises if lab else {}) if name not in found]
    if missing:
        raise BuildError(path, 1, f"exercises with checks but without a cell: {', '.join(missing)}")
    return found


def _lab(path: Path):
    slug = slug_of(path)
    return exercises.load(slug) if slug in exercises.LABS else None


# ---------------------------------------------------------------------------------------------- writing


def _notebook(path: Path, keep_solutions: bool) -> nbformat.NotebookNode:
    import jupytext  # on first use: graders never build a notebook

    slug, blocks = slug_of(path), _blocks(path)
    exercise_at = {block.line: name for name, block in _exercise_blocks(path, blocks).items()}
    text = expanded(path, path.read_text(encoding="utf-8"), _lab(path))
    notebook = jupytext.reads(text, fmt="py:percent")
    if len(notebook.cells) != len(blocks):
        raise BuildError(path, 1, "text above the first `# %%` cell: every line belongs to a cell")
    for position, (cell, block) in enumerate(zip(notebook.cells, blocks, strict=True)):
        cell.id = f"{slug}-{position:03d}"
        cell.metadata = nbformat.NotebookNode()
        if block.line in exercise_at:
            blank = _without_solutions(cell.source)  # `hpcdl reset` puts it back
            cell.metadata["hpcdl"] = {"exercise": f"{slug}.{exercise_at[block.line]}", "blank": blank}
            cell.source = _without_marks(cell.source) if keep_solutions else blank
    notebook.metadata = nbformat.from_dict({"hpcdl": {"lab": slug}, **KERNEL})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return notebook


def the_map() -> nbformat.NotebookNode:
    """Return `labs/README.md` as a notebook whose first code cell shows the progress, without the parts for authors."""
    text, _, _ = (LABS_DIR / "README.md").read_text(encoding="utf-8").partition("\n## For authors")
    heading, rest = text.split("\n", 1)
    new = nbformat.v4
    cells = [
        new.new_markdown_cell(f"{heading}\n\n{WHERE}", id="map-000"),
        new.new_code_cell("from hpcdl.widgets.overview import where_am_i\n\nwhere_am_i()", id="map-001"),
        new.new_markdown_cell(rest.strip(), id="map-002"),
    ]
    return new.new_notebook(cells=cells, metadata=KERNEL)


def _without_marks(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if line.strip() not in (BEGIN, END))


def _without_solutions(source: str) -> str:
    kept, inside = [], False
    for line in source.splitlines():
        if line.strip() == BEGIN:
            inside = True
            kept.append(line[: len(line) - len(line.lstrip())] + STUB)
        elif line.strip() == END:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def built(path: Path) -> dict[Path, str]:
    """Return the files made from a lab's source: its notebook, and the names in hpcdl open to answers."""
    slug, lab = slug_of(path), _lab(path)
    files = {LABS_DIR / f"{path.stem}.ipynb": write(student(slug))}
    return files | ({allowed.path(slug): allowed.text(lab, code(slug))} if lab else {})


def main(arguments: list[str]) -> int:
    differing = []
    files = [item for path in sources() for item in built(path).items()]
    if (LABS_DIR / "README.md").exists():  # instructors with their own labs may have no such page
        files.append((LABS_DIR / labs.MAP, write(the_map())))
    for target, text in files:
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        differing.append(target.name)
        if "--check" not in arguments:
            target.write_text(text, encoding="utf-8")
            print(f"wrote {target.parent.name}/{target.name}")
    if differing and "--check" in arguments:
        print(f"out of date: {', '.join(differing)}; run `make labs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BuildError as error:
        sys.exit(f"build error: {error}")
    except (FileNotFoundError, ImportError) as error:
        sys.exit(str(error))
