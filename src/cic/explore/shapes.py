"""A MuJoCo model as a few batches of unit shapes: spheres, cylinders, boxes and its meshes.

A capsule is a cylinder and two spheres, a plane a square unless it has no end; then it is the floor. So a whole body
moves with two messages per batch, however many geoms it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from cic.envs.bodies import Poses

Doubles = npt.NDArray[np.float64]
Mesh = tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]
HIDDEN_GROUP = 3
"""MuJoCo's own viewer shows the groups below it."""
FAR = 20.0
"""Metres from which on a plane counts as endless."""
PLANE = np.array([0.87, 0.89, 0.91, 1.0])
"""The colour of planes: theirs comes from a texture."""
SHADE = 0.8
"""The page is lit brighter than MuJoCo's own pictures."""
_DEFAULT = np.array([0.5, 0.5, 0.5, 1.0])


@dataclass(frozen=True)
class Batch:
    """Copies of one shape: each hangs on a geom, shifted along its axes and stretched."""

    name: str
    mesh: Mesh
    geoms: npt.NDArray[np.int64]  # (N,)
    offsets: Doubles  # (N, 3), in the geom's frame
    scales: Doubles  # (N, 3)
    colours: npt.NDArray[np.uint8]  # (N, 3)
    opacities: Doubles  # (N,)

    def placed(self, poses: Poses) -> tuple[Doubles, Doubles]:
        """Positions (N, 3) and quaternions (N, 4) of the copies."""
        axes = poses.axes[self.geoms]
        return poses.positions[self.geoms] + np.einsum("nij,nj->ni", axes, self.offsets), quaternions(axes)


@dataclass(frozen=True)
class Figure:
    """All that is to be drawn of a model."""

    batches: list[Batch]
    floor: float | None
    """Height of an endless plane; None where there is none."""


def figure(model: Any) -> Figure:
    """What to draw of a model."""
    parts: dict[str, list[tuple[int, Doubles, Doubles]]] = {}
    floor: float | None = None
    for geom in range(model.ngeom):
        kind, size = mujoco.mjtGeom(int(model.geom_type[geom])), np.array(model.geom_size[geom])
        if model.geom_group[geom] >= HIDDEN_GROUP or colour(model, geom)[3] == 0:
            continue
        if kind == mujoco.mjtGeom.mjGEOM_PLANE and ((size[:2] == 0) | (size[:2] >= FAR)).any():
            floor = float(model.geom_pos[geom][2])
            continue
        for name, offset, scale in _pieces(kind, size, int(model.geom_dataid[geom])):
            parts.setdefault(name, []).append((geom, offset, scale))
    return Figure([_batch(model, name, pieces) for name, pieces in parts.items()], floor)


def _pieces(kind: Any, size: Doubles, mesh: int) -> list[tuple[str, Doubles, Doubles]]:
    """(shape, offset, scale) of what makes up a geom; nothing for what cannot be drawn (height fields)."""
    here, shapes = np.zeros(3), mujoco.mjtGeom
    radius, half = size[0], size[1]
    if kind == shapes.mjGEOM_SPHERE:
        return [("sphere", here, np.full(3, radius))]
    if kind == shapes.mjGEOM_ELLIPSOID:
        return [("sphere", here, size)]
    if kind == shapes.mjGEOM_CYLINDER:
        return [("cylinder", here, np.array([radius, radius, half]))]
    if kind == shapes.mjGEOM_CAPSULE:
        ends = [("sphere", np.array([0.0, 0.0, end]), np.full(3, radius)) for end in (-half, half)]
        return [("cylinder", here, np.array([radius, radius, half])), *ends]
    if kind == shapes.mjGEOM_BOX:
        return [("box", here, size)]
    if kind == shapes.mjGEOM_PLANE:
        return [("plane", here, np.array([size[0], size[1], 1.0]))]
    if kind == shapes.mjGEOM_MESH:
        return [(f"mesh{mesh}", here, np.ones(3))]
    return []


def _batch(model: Any, name: str, pieces: list[tuple[int, Doubles, Doubles]]) -> Batch:
    geoms, offsets, scales = (np.array(column) for column in zip(*pieces, strict=True))
    shape = {"sphere": sphere, "cylinder": cylinder, "box": box, "plane": square}.get(name)
    mesh = shape() if shape is not None else model_mesh(model, int(name.removeprefix("mesh")))
    rgba = np.stack([colour(model, int(geom)) for geom in geoms])
    return Batch(
        name, mesh, geoms, offsets, scales, (SHADE * 255 * rgba[:, :3].clip(0, 1)).astype(np.uint8), rgba[:, 3]
    )


def colour(model: Any, geom: int) -> Doubles:
    """A geom's own colour, or its material's where it has none."""
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE:
        return PLANE
    own, material = np.array(model.geom_rgba[geom], np.float64), int(model.geom_matid[geom])
    return np.array(model.mat_rgba[material], np.float64) if material >= 0 and np.allclose(own, _DEFAULT) else own


def quaternions(axes: Doubles) -> Doubles:
    """(N, 4) with the real part first, of rotation matrices (N, 3, 3)."""
    m = axes.reshape(-1, 9)
    xx, yy, zz = m[:, 0], m[:, 4], m[:, 8]
    # 4 q_i², of which the largest is far from 0 and divides the products
    squares = np.stack([1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz], axis=1)
    a, b, c = m[:, 7] - m[:, 5], m[:, 2] - m[:, 6], m[:, 3] - m[:, 1]
    d, e, f = m[:, 1] + m[:, 3], m[:, 2] + m[:, 6], m[:, 5] + m[:, 7]
    rows = np.stack(
        [
            np.stack([squares[:, 0], a, b, c], axis=1),
            np.stack([a, squares[:, 1], d, e], axis=1),
            np.stack([b, d, squares[:, 2], f], axis=1),
            np.stack([c, e, f, squares[:, 3]], axis=1),
        ],
        axis=1,
    )
    picked = rows[np.arange(len(m)), squares.argmax(axis=1)]
    return np.asarray(picked / np.linalg.norm(picked, axis=1, keepdims=True))


def matrices(turns: Doubles) -> Doubles:
    """(N, 3, 3): the rotation matrices of quaternions (N, 4)."""
    w, x, y, z = turns.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), 2, 0)


def mixed(before: Poses, after: Poses, share: float) -> Poses:
    """In between: positions straight, rotations along their shorter way."""
    if share >= 1:
        return after
    first, second = quaternions(before.axes), quaternions(after.axes)
    second *= np.where((first * second).sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
    turns = (1 - share) * first + share * second
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    return Poses((1 - share) * before.positions + share * after.positions, matrices(turns))


# ---- unit shapes -------------------------------------------------------------------------------------------------


def sphere(around: int = 24, up: int = 12) -> Mesh:
    """Of radius 1."""
    angle, height = np.linspace(0, 2 * np.pi, around + 1), np.linspace(0, np.pi, up + 1)
    a, h = np.meshgrid(angle, height)
    vertices = np.stack([np.sin(h) * np.cos(a), np.sin(h) * np.sin(a), np.cos(h)], axis=-1).reshape(-1, 3)
    return vertices.astype(np.float32), _grid_faces(around, up)


def cylinder(around: int = 32) -> Mesh:
    """Of radius 1 along z from -1 to 1; the caps have vertices of their own, so that edges stay sharp."""
    angle = np.linspace(0, 2 * np.pi, around + 1)
    ring = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
    up = np.array([0.0, 0.0, 1.0])
    vertices = [ring + up, ring - up, ring + up, up[None], ring - up, -up[None]]
    faces = [_grid_faces(around, 1)]
    n = around + 1
    edge = np.arange(around)
    faces.append(np.stack([2 * n + edge, 2 * n + edge + 1, np.full(around, 3 * n)], axis=1))
    faces.append(np.stack([3 * n + 1 + edge + 1, 3 * n + 1 + edge, np.full(around, 4 * n + 1)], axis=1))
    return np.concatenate(vertices).astype(np.float32), np.concatenate(faces).astype(np.uint32)


def _grid_faces(around: int, up: int) -> npt.NDArray[np.uint32]:
    """Two triangles per cell of a (up + 1) × (around + 1) grid of vertices from the top down, seen from outside."""
    row, column = (part.ravel() for part in np.meshgrid(np.arange(up), np.arange(around), indexing="ij"))
    a = row * (around + 1) + column
    b, c, d = a + 1, a + around + 1, a + around + 2
    return np.concatenate([np.stack([a, c, b], axis=1), np.stack([b, c, d], axis=1)]).astype(np.uint32)


def box() -> Mesh:
    """From -1 to 1 along each axis, four vertices of its own for each side."""
    vertices: list[Doubles] = []
    faces: list[list[int]] = []
    for axis in range(3):
        for side in (-1.0, 1.0):
            corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float64)[:: int(side)]
            points = np.insert(corners, 0, side, axis=1)
            first = 4 * len(vertices)
            vertices.append(np.roll(points, axis, axis=1))
            faces += [[first, first + 1, first + 2], [first, first + 2, first + 3]]
    return np.concatenate(vertices).astype(np.float32), np.array(faces, np.uint32)


def square() -> Mesh:
    """From -1 to 1 along x and y."""
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], np.float32)
    return corners, np.array([[0, 1, 2], [0, 2, 3]], np.uint32)


def model_mesh(model: Any, mesh: int) -> Mesh:
    """One of the model's own meshes."""
    vertex, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    face, faces = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    vertices, triangles = model.mesh_vert[vertex : vertex + count], model.mesh_face[face : face + faces]
    return np.array(vertices, np.float32), np.array(triangles, np.uint32)
