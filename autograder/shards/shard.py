"""Select the part of the submissions that a machine grades, by a hash of the student, without communication."""

import hashlib
import re
from dataclasses import dataclass

from autograder.grading.submission import Submission


@dataclass(frozen=True)
class ClassShard:
    """Part `index` of `of`, counted from 1."""

    index: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "ClassShard":
        """Parse a text like "3/64"; raise ValueError if it is not a shard."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"{text!r} is not a shard: give the number of a part and of how many, 1/64 to 64/64")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def holds(self, submission: Submission) -> bool:
        """Whether the submission belongs to this part. All files of a student are in one part: the newest of them
        counts."""
        digest = hashlib.sha256(submission.student.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.index - 1
