"""Other labs in a notebook: it is graded as one lab, and the grade sheet and the feedback name the rest."""

import re

from autograder import exercises
from autograder.authoring import Lab
from autograder.inside.notebook import Notebook

CALLED = re.compile(r"""\bcheck\(\s*["'](\w+)\.(\w+)["']""", re.ASCII)


def said(content: Notebook, lab: Lab) -> str:
    """Return a sentence that names the other labs in a notebook graded as `lab`, and what to do; "" without any."""
    found = others(content, lab)
    if not found:
        return ""
    return (
        f"the notebook also has exercises of {', '.join(found)}, not graded here: hand in a notebook for each lab, or "
        f"grade it with --lab {found[0]} into another --out"
    )


def others(content: Notebook, lab: Lab) -> list[str]:
    """Return the other labs (slugs) in the notebook: an exercise with its check, or half of a lab's functions."""
    called = {match.groups() for _, source in content.cells for match in CALLED.finditer(source)}
    found = {slug for slug, name in called if _is_answered(content, slug, name)}
    return [slug for slug in exercises.LABS if slug != lab.slug and (slug in found or _is_merged(content, lab, slug))]


def _is_merged(content: Notebook, lab: Lab, slug: str) -> bool:
    """Return whether the notebook defines at least half of that lab's exercises, and three, with names that are not in
    `lab`: a helper may have the name of another lab's function."""
    asked, own = [exercise.functions for exercise in exercises.load(slug).exercises.values()], set(lab.functions)
    defined = [names for names in asked if content.names.issuperset(names) and own.isdisjoint(names)]
    return len(defined) >= max(3, len(asked) / 2)


def _is_answered(content: Notebook, slug: str, name: str) -> bool:
    exercise = exercises.load(slug).find(name) if slug in exercises.LABS else None
    return exercise is not None and not content.names.isdisjoint(exercise.functions)
