"""The document of the recorded session: blocks between markers are replaced by what was shown, the words around them stay."""

import re
from collections.abc import Mapping
from typing import Final

from devstack.errors import StackError

_BLOCK: Final = re.compile(r"<!-- session: (?P<name>[a-z-]+) -->\n(?P<shown>.*?)<!-- end -->\n", re.DOTALL)


def blocks(document: str) -> dict[str, str]:
    """What stands between the markers of each name, without the fence. Raises `StackError` for a name that is there twice."""
    found: dict[str, str] = {}
    for block in _BLOCK.finditer(document):
        if block["name"] in found:
            raise StackError(f"the document has two places for the session's block {block['name']}")
        found[block["name"]] = block["shown"].removeprefix("```console\n").removesuffix("\n```\n")
    return found


def replaced(document: str, shown: Mapping[str, str]) -> str:
    """The document with these blocks. Raises `StackError` when it has places for others, or none for one of these."""
    if differing := blocks(document).keys() ^ shown.keys():
        raise StackError(f"the session and the document do not have the same blocks: {', '.join(sorted(differing))}")
    return _BLOCK.sub(
        lambda block: f"<!-- session: {block['name']} -->\n```console\n{shown[block['name']]}\n```\n<!-- end -->\n", document
    )


_PATH: Final = re.compile(r"(?<![\w/:.])/(?:home|root|tmp|work|Users|var)/\S*")


def require_neutral(shown: Mapping[str, str], *ours: str) -> None:
    """Raise `StackError` for what a document must not tell of the machine where it was made: these words, absolute paths."""
    text = "\n".join(shown.values())
    if found := {word for word in ours if word in text} | set(_PATH.findall(text)):
        raise StackError(f"the session shows what belongs to this machine: {', '.join(sorted(found))}")
