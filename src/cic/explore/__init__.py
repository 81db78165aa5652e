"""A page in the browser on which one watches an agent live and plays with its skills. Needs the extra `explore`."""

from __future__ import annotations

from cic.explore.gallery import Gallery, Options
from cic.explore.loaded_agent import offered, open_subject, spelled
from cic.explore.server import Explorer

__all__ = ["Explorer", "Gallery", "Options", "offered", "open_subject", "spelled"]
