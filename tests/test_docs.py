"""The documents tell the truth: their Python runs, their links lead somewhere, their commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import api_pages  # noqa: E402

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "labs" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


PYTHON = [(page, code) for page in PAGES for code in blocks(page, "python")]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_commands_in_the_documents_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name} says `make {target}`"


@pytest.mark.long
def test_the_instructors_page_prints_what_it_says(need):
    from autograder.walls import sandbox

    need("namespaces", "namespaces" in sandbox.words(), "the page shows the strongest isolation")
    command = [sys.executable, ROOT / "docs" / "transcript.py", ROOT / "docs" / "instructors.md", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=290)
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
