"""Match rows of a course system's sheet with results: by number and name, never by a guess.

Students choose names of files, and names in the course system. A result that fits several rows is not entered, and a
row that fits several results does not change; both are reported, with all names.
"""

from collections import defaultdict
from dataclasses import dataclass

from autograder.grading import owners
from autograder.results import LabResult

HIDDEN = "Participant"  # what Moodle calls students whose names it hides; Canvas's numbers for them are in no sheet
BY_NUMBER, BY_ID, BY_NAME = 3, 2, 1


@dataclass(frozen=True)
class Person:
    """A row of a sheet: its number, other unique values (logins, addresses), and names, which may repeat."""

    row: int
    number: str
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return next(filter(None, [*self.names, *self.ids]), self.number)

    def fits(self, student: str) -> int:
        """Return how well a result's student fits this row; 0 if not at all."""
        name, _, number = student.rpartition("_")
        known = [text for text in (*self.names, *self.ids) if text]
        if name and number.isdigit() and number == self.number:
            alike = not known or name == HIDDEN or any(_letters(name) == _letters(other) for other in known)
            return BY_NUMBER if alike else 0
        wanted = _folded(student)
        if wanted in {_folded(text) for text in (self.number, *self.ids) if text}:
            return BY_ID
        return BY_NAME if wanted in {_folded(text) for text in self.names if text} else 0


class Roster:
    """The result of each row, and why a row or a result has no match."""

    def __init__(self, found: list[LabResult], people: list[Person]):
        self.results: dict[int, LabResult] = {}  # by row
        self.refused: dict[int, str] = {}  # by row
        self.left: list[str] = []  # results that are in no row
        claims: dict[Person, list[tuple[int, LabResult]]] = defaultdict(list)
        for result in _one_of_each(found):
            degrees = {person: degree for person in people if (degree := person.fits(result.student))}
            best = [person for person, degree in degrees.items() if degree == max(degrees.values())]
            if len(best) == 1:
                claims[best[0]].append((degrees[best[0]], result))
            elif best:
                rows = " and ".join(f"{person.label} ({person.number or 'no number'})" for person in best)
                self.left.append(f"{result.student}: fits the rows of {rows}; enter it by hand")
                self.refused |= {person.row: f"{result.student} fits several rows" for person in best}
            else:
                self.left.append(f"{result.student}: no row in the sheet")
        for person, claimed in claims.items():
            self._settle(person, claimed)

    def _settle(self, person: Person, claimed: list[tuple[int, LabResult]]) -> None:
        most = max(degree for degree, _ in claimed)
        best = [result for degree, result in claimed if degree == most]
        if len(best) > 1:
            names = " and ".join(repr(result.student) for result in best)
            self.refused[person.row] = f"{names} both fit this row; enter one by hand"
        else:
            self.results[person.row] = best[0]
            self.refused.pop(person.row, None)
        taken = repr(best[0].student)
        others = [result for degree, result in claimed if degree < most]
        self.left += [f"{result.student}: its row, {person.label}, is that of {taken}" for result in others]


def _one_of_each(found: list[LabResult]) -> list[LabResult]:
    """Return one result of each student, a graded one if there is one."""
    return list({result.student: result for result in sorted(found, key=lambda r: r.status == "graded")}.values())


def _letters(name: str) -> list[str]:
    """Return a name without order and punctuation: `Lovelace, Ada`, `Ada Lovelace` and `lovelaceada` are one."""
    return sorted(character for character in _folded(name) if character.isalnum())


def _folded(name: str) -> str:
    return owners.composed(name).casefold()
