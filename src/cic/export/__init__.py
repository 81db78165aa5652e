"""Export of a run for other programs: its experience (ExORL, Minari) and its policy (ONNX, torch.export).

from cic.export import episodes_of, export_policy, read_exorl, write_exorl, write_minari
"""

from cic.data.exorl import read_exorl
from cic.data.minari import read_minari
from cic.export.data import DataExport, export_data
from cic.export.episodes import Experience, episodes_of
from cic.export.exorl import write_exorl
from cic.export.minari import write_minari
from cic.export.policy import export_policy
from cic.learning.replay import Episode

__all__ = [
    "DataExport",
    "Episode",
    "Experience",
    "episodes_of",
    "export_data",
    "export_policy",
    "read_exorl",
    "read_minari",
    "write_exorl",
    "write_minari",
]
