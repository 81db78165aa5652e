"""mkdocs hook: a link to a file outside of docs/ becomes plain text on the site, which does not contain that file."""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:src|results|examples|tests)/[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(r"\1", markdown)
