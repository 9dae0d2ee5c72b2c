"""The documents tell the truth: their Python runs, their links lead somewhere, their commands exist."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from autograder import cli as grader
from hpcdl import cli as hpcdl

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import api_pages  # noqa: E402

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "labs" / "README.md",
    ROOT / "autograder" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs" / "teaching" / "index.md",
]
PAGES = [page for page in PAGES if page.name not in ("gallery.md",)]  # the site's build writes it


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


# The grader's README shows files of a new lab; tests/autograder/test_readme.py runs them in their places.
PYTHON = [(page, code) for page in PAGES if page.parent.name != "autograder" for code in blocks(page, "python")]


@pytest.mark.parametrize(("page", "code"), PYTHON, ids=[page.name for page, _ in PYTHON])
def test_python_blocks_run_and_print_what_they_claim(page, code, tmp_path):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    claimed = re.findall(r"print\(.*\)\s+# (.*)$", code, re.MULTILINE)
    assert run.stdout.splitlines() == claimed


@pytest.fixture(scope="module")
def api():
    """The pages that the site's build writes."""
    api_pages.write(ROOT / "docs" / "api")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("api")
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


# -- commands ---------------------------------------------------------------------------------------------------------
# instructors.md is run below, training.md in tests/hpcdl/cluster/test_training_docs.py, the engines' scripts in
# tests/autograder/shards. Here every command of every page is parsed by the program itself, without running it.

PROGRAMS = {
    "autograder": typer.main.get_command(grader.app),
    "hpcdl": typer.main.get_command(hpcdl.app),
}
STARTERS = re.compile(r"^(?:[A-Z_]+=\S+ +)*(?:mpiexec -n \d+ +)?")
TORCHRUN = re.compile(r"^torchrun --nproc-per-node \d+ -m hpcdl\.training")
OTHERS = {  # a program of a page that no test runs as it stands, and why
    "cd": "goes to another folder",
    "cut": "shows a part of a file; run with instructors.md",
    "cp": "copies a student's notebook",
    "docker": "needs a daemon; tests/test_containers.py reads the Dockerfile",
    "git": "changes a student's clone",
    "head": "run with instructors.md",
    "install": "needs root; tests/test_jupyterhub.py makes such a folder",
    "ls": "run with instructors.md",
    "make": "starts all of it: each target is looked up in the Makefile",
    "mkdir": "makes a folder",
    "npm": "fetches a proxy; tests/test_jupyterhub.py starts the hub with it where it is installed",
    "pip": "needs a network; tests/test_package.py installs the wheel",
    "printf": "run with instructors.md",
    "python": "its module or file is looked up",
    "python3": "its module or file is looked up",
    "sbatch": "needs a queue; the tests hand the same file to a real Slurm",
    "sed": "run with instructors.md",
    "source": "changes the shell",
    "xcode-select": "is a Mac's",
}


def shell_lines(page: Path) -> list[str]:
    """Return the commands in a page's shell blocks and indented blocks, without comments."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = "".join(re.findall(r"^    (.*\n)", prose, re.MULTILINE))
    known = {*PROGRAMS, *OTHERS, "mpiexec", "torchrun"}
    found = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    found += [line for line in indented.splitlines() if command_of(line).split(" ")[0] in known]
    parts = [part for line in found for part in re.split(r" && |; (?=\w)", re.sub(r"\s+#.*", "", line))]
    return [command for part in parts if (command := command_of(part)) and not command.startswith("#")]


def command_of(line: str) -> str:
    """Return a line without what only starts it: `.venv/bin/`, variables, mpiexec; torchrun starts `hpcdl train`."""
    line = re.sub(r"^\. \S+$", "", line.strip().replace(".venv/bin/", ""))
    return TORCHRUN.sub("hpcdl train", STARTERS.sub("", line))


def mentioned(page: Path) -> list[str]:
    """Return the commands of our programs in a page's prose."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = [command_of(" ".join(code.split())) for code in re.findall(r"`([^`]+)`", prose)]
    return [code for code in found if code.split(" ")[0] in PROGRAMS and re.fullmatch(r"\S+( \S+)+", code)]


UsageError = typer.BadParameter.__mro__[1]  # click's own, or that of a typer which has click inside


AT_ONCE = {"--help", "--version", "--install-completion", "--show-completion"}  # they act while they are parsed


def parse(command: str, *, whole: bool = True) -> None:
    """Let the program parse its arguments; raise UsageError if it would refuse them.

    Files need not exist; without `whole`, an argument may be missing.
    """
    name, *words = [word for word in shlex.split(re.split(r" [>|<] ", command)[0]) if word not in AT_ONCE]
    here, context = PROGRAMS[name], None
    fine = re.compile("does not exist" if whole else "does not exist|Missing (argument|option|parameter)")
    try:
        while words or context:
            context = here.make_context(name, words, parent=context)
            words = [*getattr(context, "_protected_args", []), *context.args]
            if not hasattr(here, "resolve_command") or not words:
                return
            name, here, words = here.resolve_command(context, words)
    except UsageError as error:
        if not fine.search(error.format_message()):
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_understood(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in shell_lines(page):
        program, *words = command.split()
        if program in PROGRAMS:
            parse(command)
            continue
        assert program in OTHERS or re.match(r"jupyterhub$|cat$", program), f"{page.name}: {command}"
        if program == "make":
            target = next(word for word in words if "=" not in word)
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name} says `{command}`"
        if program.startswith("python") and words[0] == "-m":
            assert importlib.util.find_spec(words[1]), f"{page.name} says `{command}`"
        elif program.startswith("python"):
            assert (ROOT / words[0].removeprefix("course/")).exists(), f"{page.name} says `{command}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_prose_exist(page):
    """A sentence may leave out arguments, but it names no option or command that does not exist."""
    for command in mentioned(page):
        parse(command.replace(" ...", ""), whole=False)


@pytest.mark.parametrize(
    "command", ["autograder grad results", "hpcdl slides --offline 07", "autograder grade a --out b --count newest"]
)
def test_command_that_does_not_exist_is_found(command):
    with pytest.raises(UsageError):
        parse(command)


@pytest.mark.long
@pytest.mark.timeout(1700)
def test_the_instructors_page_prints_what_it_says(need):
    from autograder.walls import sandbox

    need("namespaces", "namespaces" in sandbox.words(), "the page shows the strongest isolation")
    command = [sys.executable, ROOT / "docs" / "transcript.py", ROOT / "docs" / "instructors.md", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1600)
    assert ended.returncode == 0, ended.stdout + ended.stderr


GLOSSARY = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if re.fullmatch(r"\| .* \| \d\d \|", line)
]


@pytest.mark.parametrize(("term", "sentence", "lab"), GLOSSARY, ids=[row[0] for row in GLOSSARY])
def test_a_word_of_the_glossary_occurs_in_its_lab(term, sentence, lab):
    (source,) = (ROOT / "labs" / "source").glob(f"{lab}_*.py")
    text = re.sub(r"\s+(# )?", " ", source.read_text(encoding="utf-8"))
    assert re.search(rf"(?<!\w){re.escape(term)}", text, re.IGNORECASE)
    assert len(sentence) > 20


def test_the_glossary_is_in_the_order_of_the_labs_and_names_nothing_twice():
    terms, labs = [row[0] for row in GLOSSARY], [row[2] for row in GLOSSARY]
    assert len(terms) == len(set(terms)) > 40
    assert labs == sorted(labs)
