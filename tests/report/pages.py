"""Reading a report's page back, as strictly as XML is read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

# What HTML 5 allows of the elements that the page uses (https://html.spec.whatwg.org).
VOID = ("meta", "link", "img")
PARENTS = {
    "li": {"ul"},
    "dt": {"div"},
    "dd": {"div"},
    "tr": {"thead", "tbody"},
    "th": {"tr"},
    "td": {"tr"},
    "thead": {"table"},
    "tbody": {"table"},
    "figcaption": {"figure"},
    "summary": {"details"},
    "title": {"head"},
    "meta": {"head"},
    "style": {"head"},
}
FLOW = {"p", "div", "ul", "table", "figure", "section", "details", "pre", "h1", "h2", "h3", "dl"}
PHRASING_ONLY = {"p", "h1", "h2", "h3", "span", "a", "strong", "summary", "th", "td", "pre", "code"}


def parse(page: Path) -> ET.Element:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    assert "/>" not in text, "HTML does not close elements so"
    closed = re.sub(rf"<({'|'.join(VOID)})\b([^<>]*)>", r"<\1\2/>", text)
    return ET.fromstring(closed.removeprefix("<!DOCTYPE html>\n"))


def problems(root: ET.Element) -> list[str]:
    """What a validator would say, for the part of HTML that the page uses."""
    found = []
    ids = [node.get("id") for node in root.iter() if node.get("id")]
    found += [f"id {name} twice" for name in set(ids) if ids.count(name) > 1]
    for parent in root.iter():
        for child in parent:
            if child.tag in PARENTS and parent.tag not in PARENTS[child.tag]:
                found.append(f"<{child.tag}> in <{parent.tag}>")
            if parent.tag in PHRASING_ONLY and child.tag in FLOW:
                found.append(f"<{child.tag}> in <{parent.tag}>")
        for name in ("href", "aria-labelledby", "aria-describedby"):
            target = parent.get(name, "")
            target = target.removeprefix("#") if name == "href" and target.startswith("#") else target
            if target and not target.startswith("data:") and target not in ids:
                found.append(f"{name} leads to {target}, which is nowhere")
    found += ["an image without alt" for node in root.iter("img") if not node.get("alt")]
    found += ["a video without label" for node in root.iter("video") if not node.get("aria-label")]
    levels = [int(node.tag[1]) for node in root.iter() if re.fullmatch(r"h[1-6]", node.tag)]
    found += ["heading levels skip" for a, b in zip([0, *levels], levels, strict=False) if b > a + 1]
    found += ["not one h1"] if levels.count(1) != 1 else []
    found += ["no title"] if not (root.findtext("head/title") or "").strip() else []
    return found


def table(root: ET.Element, name: str) -> list[dict[str, str]]:
    """A table of the page as one dict per row; a cell under an empty head of a block inherits it."""
    node = root.find(f".//table[@id='table-{name}']")
    assert node is not None, f"no table {name}"
    heads = ["".join(cell.itertext()) for cell in node.findall("./thead/tr/th")]
    rows = []
    for line in node.findall("./tbody/tr"):
        rows.append(dict(zip(heads, ("".join(cell.itertext()) for cell in line), strict=True)))
    return rows
