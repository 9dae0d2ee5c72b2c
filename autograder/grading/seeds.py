"""Seeds for the random inputs of checks: different for each student, derived from the course's secret."""

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path

Seeds = Callable[[str], int]  # "slug.exercise.check" -> seed


def seeds(secret: bytes, student: str) -> Seeds:
    """Return a student's seed for each check; it cannot be predicted without the secret."""

    def seed(check_id: str) -> int:
        digest = hmac.new(secret, f"{student}\0{check_id}".encode("utf-8", "surrogateescape"), hashlib.sha256).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    return seed


def course_secret(out: Path, file: Path | None = None) -> bytes:
    """Return the secret behind the seeds: from `file`, from HPCDL_SECRET in the environment, or one created and kept in
    `out`."""
    if file is not None:
        return file.read_bytes().strip()
    if given := os.environ.get("HPCDL_SECRET"):
        return given.encode()
    path = out / ".secret"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        temporary = out / f".secret.{os.getpid()}"
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as made:
            made.write(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):  # another grader may just have created one: use it
            os.link(temporary, path)
        temporary.unlink()
    return path.read_bytes().strip()
