"""The readme of the released package: its links lead to the repository, since a package page has no files beside it."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^]]*\])\((?!https?:)(?P<target>[^)]+)\)")


def absolute(text: str, repository: str) -> str:
    """`text` with each relative link made one into `repository`; of an image, to its bytes."""

    def link(found: re.Match) -> str:
        kind, target = "raw" if found["image"] else "blob", found["target"]
        place = target if target.startswith("#") else f"/{kind}/main/{target}"
        return f"{found['image']}{found['text']}({repository}{place})"

    return LINK.sub(link, text)


class Readme(MetadataHookInterface):
    """Hatch asks it for what pyproject.toml calls dynamic."""

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        readme = absolute(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
