"""The geoms of a MuJoCo model as instances of a few meshes: sphere, cylinder, box, square and the model's own meshes.

A capsule is a cylinder and two spheres. A plane is a square, or the floor if it is unbounded. So a whole body moves
with two messages per mesh, independent of the number of geoms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from cic.envs.bodies import Poses

Doubles = npt.NDArray[np.float64]
Mesh = tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]
HIDDEN_GROUP = 3
"""MuJoCo's own viewer shows the groups below it."""
UNBOUNDED = 20.0
"""Size in metres from which a plane counts as unbounded."""
PLANE_COLOUR = np.array([0.87, 0.89, 0.91, 1.0])
"""Planes are coloured by a texture in MuJoCo."""
BRIGHTNESS = 0.8
"""The page has brighter lights than MuJoCo's renderer."""
_DEFAULT_COLOUR = np.array([0.5, 0.5, 0.5, 1.0])


@dataclass(frozen=True)
class MeshInstances:
    """Instances of one mesh, each attached to a geom with an offset and a scale."""

    name: str
    mesh: Mesh
    geoms: npt.NDArray[np.int64]  # (N,)
    offsets: Doubles  # (N, 3), in the frame of the geom
    scales: Doubles  # (N, 3)
    colours: npt.NDArray[np.uint8]  # (N, 3)
    opacities: Doubles  # (N,)

    def placed(self, poses: Poses) -> tuple[Doubles, Doubles]:
        """Return positions (N, 3) and quaternions (N, 4) of the instances."""
        axes = poses.axes[self.geoms]
        return poses.positions[self.geoms] + np.einsum("nij,nj->ni", axes, self.offsets), quaternions(axes)


@dataclass(frozen=True)
class BodyMeshes:
    """Everything that is drawn of a model."""

    meshes: list[MeshInstances]
    floor: float | None
    """Height of an unbounded plane, if there is one."""


def body_meshes(model: Any) -> BodyMeshes:
    parts: dict[str, list[tuple[int, Doubles, Doubles]]] = {}
    floor: float | None = None
    for geom in range(model.ngeom):
        kind, size = mujoco.mjtGeom(int(model.geom_type[geom])), np.array(model.geom_size[geom])
        if model.geom_group[geom] >= HIDDEN_GROUP or _colour(model, geom)[3] == 0:
            continue
        if kind == mujoco.mjtGeom.mjGEOM_PLANE and ((size[:2] == 0) | (size[:2] >= UNBOUNDED)).any():
            floor = float(model.geom_pos[geom][2])
            continue
        for name, offset, scale in _pieces(kind, size, int(model.geom_dataid[geom])):
            parts.setdefault(name, []).append((geom, offset, scale))
    return BodyMeshes([_instances(model, name, pieces) for name, pieces in parts.items()], floor)


def _pieces(kind: Any, size: Doubles, mesh: int) -> list[tuple[str, Doubles, Doubles]]:
    """Return (mesh, offset, scale) of the parts of a geom; nothing for height fields."""
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


def _instances(model: Any, name: str, pieces: list[tuple[int, Doubles, Doubles]]) -> MeshInstances:
    geoms, offsets, scales = (np.array(column) for column in zip(*pieces, strict=True))
    mesh = model_mesh(model, int(name.removeprefix("mesh"))) if name.startswith("mesh") else unit_mesh(name)
    rgba = np.stack([_colour(model, int(geom)) for geom in geoms])
    colours = (BRIGHTNESS * 255 * rgba[:, :3].clip(0, 1)).astype(np.uint8)
    return MeshInstances(name, mesh, geoms, offsets, scales, colours, rgba[:, 3])


def _colour(model: Any, geom: int) -> Doubles:
    """Return the colour of a geom, or of its material if the geom has the default colour."""
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE:
        return PLANE_COLOUR
    own, material = np.array(model.geom_rgba[geom], np.float64), int(model.geom_matid[geom])
    use_material = material >= 0 and np.allclose(own, _DEFAULT_COLOUR)
    return np.array(model.mat_rgba[material], np.float64) if use_material else own


def unit_mesh(name: str) -> Mesh:
    """Return a sphere of radius 1, or a cylinder, box or plane from -1 to 1 along each axis."""
    from trimesh import Trimesh, creation

    if name == "sphere":
        mesh = creation.icosphere(subdivisions=3)
    elif name == "cylinder":
        mesh = creation.cylinder(radius=1.0, height=2.0, sections=32).smooth_shaded  # separate vertices at sharp edges
    elif name == "box":
        mesh = creation.box(extents=(2.0, 2.0, 2.0)).smooth_shaded
    else:
        mesh = Trimesh([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], [[0, 1, 2], [0, 2, 3]])
    return np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.uint32)


def model_mesh(model: Any, mesh: int) -> Mesh:
    vertex, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    face, faces = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    vertices, triangles = model.mesh_vert[vertex : vertex + count], model.mesh_face[face : face + faces]
    return np.array(vertices, np.float32), np.array(triangles, np.uint32)


def quaternions(axes: Doubles) -> Doubles:
    """Convert rotation matrices (N, 3, 3) to quaternions (N, 4), real part first."""
    return np.roll(Rotation.from_matrix(axes).as_quat(), 1, axis=1)


def interpolate(before: Poses, after: Poses, share: float) -> Poses:
    """Interpolate positions linearly and rotations along the shorter arc."""
    if share >= 1:
        return after
    first, second = Rotation.from_matrix(before.axes), Rotation.from_matrix(after.axes)
    turned = first * Rotation.from_rotvec(share * (first.inv() * second).as_rotvec())
    return Poses((1 - share) * before.positions + share * after.positions, turned.as_matrix())
