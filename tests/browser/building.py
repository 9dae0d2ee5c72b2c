"""Build the site once for all tests, and a small one in seconds."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_built: dict[str, Path] = {}


def site(tmp_path_factory) -> Path:
    """Return the site as `make docs` builds it, with short animations; a warning is an error."""
    if "site" not in _built:
        out = tmp_path_factory.mktemp("site")
        command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", ROOT / "docs", out]
        _run(command, 280, HPCDL_SITE="quick")
        _built["site"] = out
    return _built["site"]


def small_site(tmp_path_factory) -> Path:
    """Return two pages in the site's theme: the card of a lab, and the lab's page with a made-up picture."""
    folder = tmp_path_factory.mktemp("small_site")
    _run([Path(__file__).with_name("small_site.py"), folder], 120, PYTHONPATH=str(ROOT))
    return folder / "built"


def _run(command: list, seconds: float, **more: str) -> None:
    command = [sys.executable, *map(str, command)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env={**os.environ, **more})
    assert ended.returncode == 0, ended.stderr
