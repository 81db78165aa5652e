"""mkdocs hook: links to files that the site does not contain become text with the path as tooltip."""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:src|results|examples|tests)/[^)#]*)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(r'<abbr title="\2 in the repository">\1</abbr>', markdown)
