"""Random generators as integer arrays, so that a state consists of arrays only.

The suite uses `numpy.random.RandomState`, as dm_control does: the same seed gives the same initial states.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

WORDS = 627  # 624 of the Mersenne twister, its position, and the spare normal deviate with its flag


def pack(random: np.random.RandomState) -> Ints:
    """A RandomState as (627,) int64."""
    _, keys, position, has_gauss, gauss = random.get_state(legacy=True)
    packed = np.empty(WORDS, np.int64)
    packed[:624] = keys
    packed[624], packed[625] = position, has_gauss
    packed[626] = np.float64(gauss).view(np.int64)  # its bits, not its value
    return packed


def unpack(random: np.random.RandomState, packed: Ints) -> None:
    """Restore the state that `pack` returned."""
    packed = np.asarray(packed, np.int64)
    if not 0 <= packed[624] <= 624:  # numpy does not check it and would read beyond the array
        raise ValueError(f"{packed[624]} is not a position of a Mersenne twister")
    gauss = float(packed[626:].view(np.float64)[0])
    random.set_state(("MT19937", packed[:624].astype(np.uint32), int(packed[624]), int(packed[625]), gauss))


def pack_generator(generator: np.random.Generator) -> Ints:
    """A PCG64 generator, as Gymnasium's `np_random` is, as (6,) int64."""
    state = generator.bit_generator.state
    big = [state["state"]["state"], state["state"]["inc"]]
    words = [w for value in big for w in (value >> 64, value & (2**64 - 1))]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64).view(np.int64)


def unpack_generator(packed: Ints) -> np.random.Generator:
    """The generator that `pack_generator` packed."""
    words = [int(w) for w in np.ascontiguousarray(packed, np.int64).view(np.uint64)]
    generator = np.random.Generator(np.random.PCG64())
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]},
        "has_uint32": words[4],
        "uinteger": words[5],
    }
    return generator
