"""Encoders compute the features that objective, actor and critic use from observations.

The encoder follows from the observation space: `Identity` for a vector, otherwise `PartEncoder`, which encodes images
with a CNN, keeps vectors, and concatenates the features of all parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cic.core.config import require
from cic.core.errors import UserError, unknown
from cic.core.observations import Part
from cic.core.types import Spaces
from cic.learning.networks import orthogonal_init, trunk

CHANNELS = 32
_LARGE, _SMALL = ((3, 2), (3, 1), (3, 1), (3, 1)), ((2, 1), (2, 1))
"""Kernel and stride of the convolutions of large and small images."""


@dataclass(frozen=True)
class EncoderConfig:
    """How observations are encoded, if they contain images or named parts."""

    image_features: int = 50
    """Width of the features of each image."""
    shift: int = 4
    """Images are shifted by up to this many pixels at random in each update; 0 for none."""
    encoder_gradients: Literal["corrected", "released"] = "corrected"
    """The losses that train the image encoder. corrected: the critic's and, for methods that learn a representation,
    the objective's. released: the objective's alone, as in the code of URLB (none for CIC; a finetuning does not train
    the encoder)."""
    auxiliary: Literal["none", "curl"] = "none"
    """A loss that trains the image encoder in addition: curl (contrastive, Laskin et al. 2020)."""
    objective_keys: tuple[str, ...] = ()
    """Keys of a Dict observation that the objective uses; by default all. Actor and critic always use all."""

    def __post_init__(self) -> None:
        require(self.image_features >= 1, f"image_features must be at least 1, not {self.image_features}")
        require(self.shift >= 0, f"shift must not be negative, not {self.shift}")


CLIP = 10.0
"""Bound of normalised observations."""


class Encoder(nn.Module):
    """Features of an observation. One optimiser trains its parameters, with the gradients of the losses named below."""

    dim: int
    """Width of the features."""
    learns_from: frozenset[str] = frozenset({"objective", "critic"})
    """The losses whose gradients train it: "objective", "critic" and "auxiliary". The loss of the actor never does."""
    seen: list[int] | None = None
    """The features that the objective uses; None for all."""

    def augment(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """Return changed observations for an update, such as shifted images."""
        return obs


class Normaliser(Encoder):
    """(s − mean) / standard deviation of each entry over all steps so far, clipped to ±`CLIP`; no losses train it.

    The replay holds the environment's observations; they are normalised with the current statistics when they are
    used. The loop calls `observe` in training, so the statistics do not change in evaluations.
    """

    learns_from = frozenset()
    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("var", torch.ones(dim, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def observe(self, obs: Tensor) -> None:
        """Add observations (N, dim) to mean and variance (Chan et al. 1979)."""
        obs = obs.double()
        n, mean, var = len(obs), obs.mean(dim=0), obs.var(dim=0, correction=0)
        total = self.count + n
        delta = mean - self.mean
        self.var.copy_((self.var * self.count + var * n + delta.square() * self.count * n / total) / total)
        self.mean += delta * n / total
        self.count.copy_(total)

    def forward(self, obs: Tensor) -> Tensor:
        least = 1e-6 * self.mean.abs() + 1e-12  # an entry that is constant up to rounding stays about 0
        scale = torch.maximum(self.var.sqrt(), least)
        return ((obs.double() - self.mean) / scale).clamp(-CLIP, CLIP).float()


class Identity(Encoder):
    """For state observations: the features are the observation."""

    learns_from = frozenset()

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, obs: Tensor) -> Tensor:
        return obs


class ImageEncoder(nn.Module):
    """DrQ-v2's convolutions (Yarats et al. 2022) and a layer to `out` features, with LayerNorm and tanh.

    Images below 20 pixels, such as the view of MiniGrid, have convolutions of 2 × 2 without stride.
    """

    def __init__(self, part: Part, out: int) -> None:
        super().__init__()
        self.part = part
        channels, height, width = part.image
        layers: list[nn.Module] = []
        for kernel, stride in _LARGE if min(height, width) >= 20 else _SMALL:
            layers += [nn.Conv2d(channels, CHANNELS, kernel, stride), nn.ReLU(inplace=True)]
            channels, height, width = CHANNELS, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        self.convolutions = nn.Sequential(*layers)
        self.projection = trunk(CHANNELS * height * width, out)
        self.projection.apply(orthogonal_init)
        for layer in self.convolutions:
            if isinstance(layer, nn.Conv2d):
                nn.init.orthogonal_(layer.weight, math.sqrt(2))
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, pixels: Tensor) -> Tensor:
        images = as_images(pixels, self.part).float() / 255 - 0.5
        features: Tensor = self.projection(self.convolutions(images).flatten(1))
        return features


def as_images(pixels: Tensor, part: Part) -> Tensor:
    """(N, size) → (N, channels of all images of the stack, height, width)."""
    channels, height, width = part.image
    if not part.channels_last:
        return pixels.reshape(-1, channels, height, width)
    images = pixels.reshape(-1, part.frames, height, width, channels // part.frames)
    return images.permute(0, 1, 4, 2, 3).reshape(-1, channels, height, width)


def shift_images(pixels: Tensor, part: Part, most: int, generator: torch.Generator) -> Tensor:
    """Shift each stack of images (N, size) by up to `most` pixels; the border is repeated (DrQ-v2)."""
    channels, height, width = part.image
    last = channels // part.frames if part.channels_last else 1
    images = pixels.reshape(-1, channels // last, height, width, last)
    by = torch.randint(0, 2 * most + 1, (2, len(images)), generator=generator, device=pixels.device).tolist()
    padded = _repeat_border(_repeat_border(images, 2, most), 3, most)
    shifted = [one[:, y : y + height, x : x + width] for one, y, x in zip(padded, *by, strict=True)]
    return torch.stack(shifted).reshape(len(images), part.size)


def _repeat_border(images: Tensor, axis: int, count: int) -> Tensor:
    """Repeat the first and the last entry of an axis; `torch.nn.functional.pad` cannot pad uint8 this way."""
    first, last = (images.narrow(axis, at, 1) for at in (0, images.shape[axis] - 1))
    border = [one.expand(*(count if index == axis else -1 for index in range(images.ndim))) for one in (first, last)]
    return torch.cat([border[0], images, border[1]], dim=axis)


class PartEncoder(Encoder):
    """The features of all parts of an observation: images through CNNs, vectors unchanged."""

    def __init__(self, parts: tuple[Part, ...], config: EncoderConfig) -> None:
        super().__init__()
        self.parts, self.config = parts, config
        self.images = nn.ModuleDict(
            {
                f"part{index}": ImageEncoder(part, config.image_features)
                for index, part in enumerate(parts)
                if part.frames
            }
        )
        widths = [config.image_features if part.frames else part.size for part in parts]
        self.dim = sum(widths)
        if config.objective_keys:
            self.seen = self._columns(widths, config.objective_keys)

    def _columns(self, widths: list[int], keys: tuple[str, ...]) -> list[int] | None:
        names = [part.name for part in self.parts]
        for key in keys:
            if key not in names:
                raise unknown("key of the observation in objective_keys", key, names)
        starts = [sum(widths[:index]) for index in range(len(widths))]
        found = [
            column
            for name, start, width in zip(names, starts, widths, strict=True)
            if name in keys
            for column in range(start, start + width)
        ]
        return found if len(found) < self.dim else None

    def forward(self, obs: Tensor) -> Tensor:
        lead = obs.shape[:-1]
        flat = obs.reshape(-1, obs.shape[-1])
        features = []
        for index, part in enumerate(self.parts):
            own = flat[:, part.start : part.stop]
            features.append(self.images[f"part{index}"](own) if part.frames else own.float())
        return torch.cat(features, dim=-1).reshape(*lead, self.dim)

    def image_features(self, obs: Tensor) -> Tensor:
        """The features of the images alone (N, width)."""
        names = [(f"part{index}", part) for index, part in enumerate(self.parts) if part.frames]
        return torch.cat([self.images[name](obs[:, part.start : part.stop]) for name, part in names], dim=-1)

    def augment(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        if not self.config.shift or not len(self.images):
            return obs
        pieces = [obs[:, part.start : part.stop] for part in self.parts]
        shifted = [
            shift_images(piece, part, self.config.shift, generator) if part.frames else piece
            for part, piece in zip(self.parts, pieces, strict=True)
        ]
        return torch.cat(shifted, dim=-1)


def make_encoder(spaces: Spaces, config: EncoderConfig) -> Encoder:
    """Return the encoder of an observation space. Its weights are drawn from torch's global generator."""
    if not spaces.images:
        if config.auxiliary != "none":
            raise UserError(f"auxiliary={config.auxiliary} trains an image encoder: these observations have no images")
        if config.objective_keys and not spaces.parts:
            raise UserError("objective_keys selects keys of a Dict observation: these observations are one array")
        if not config.objective_keys:
            return Identity(spaces.obs)
    return PartEncoder(spaces.parts, config)
