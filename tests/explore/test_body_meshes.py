"""What is drawn is what MuJoCo has: checked on every model against its own sizes and its own quaternions."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from cic import envs
from cic.envs.bodies import Poses, main_body, movable_axes, shove
from cic.explore.body_meshes import body_meshes, interpolate, quaternions, unit_mesh

BODIES = [name for name, info in envs.domains().items() if info.module.startswith("cic.envs.suite")]


def rotations(count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    turns = rng.standard_normal((count, 4))
    turns = np.concatenate([turns, np.eye(4), [[0, 1, 1, 0], [0, 0, 1, -1]]])
    found = np.zeros((len(turns), 9))
    for turn, matrix in zip(turns, found, strict=True):
        mujoco.mju_quat2Mat(matrix, turn / np.linalg.norm(turn))
    return found.reshape(-1, 3, 3)


def test_quaternions_as_mujocos() -> None:
    axes = rotations(50)
    for matrix, turn in zip(axes, quaternions(axes), strict=True):
        expected = np.zeros(4)
        mujoco.mju_mat2Quat(expected, matrix.ravel())
        assert abs(float(turn @ expected)) == pytest.approx(1.0, abs=1e-9)  # q and -q are one rotation


def test_between_two_poses_are_rotations() -> None:
    axes = rotations(8)
    before, after = Poses(np.zeros((len(axes) - 1, 3)), axes[:-1]), Poses(np.ones((len(axes) - 1, 3)), axes[1:])
    half = interpolate(before, after, 0.5)
    np.testing.assert_allclose(
        half.axes @ half.axes.transpose(0, 2, 1), np.tile(np.eye(3), (len(axes) - 1, 1, 1)), atol=1e-9
    )
    np.testing.assert_allclose(np.linalg.det(half.axes), 1.0)
    np.testing.assert_allclose(half.positions, 0.5)
    np.testing.assert_allclose(interpolate(before, after, 0.0).axes, before.axes, atol=1e-9)


@pytest.mark.parametrize(("name", "volume"), [("sphere", 4 / 3 * np.pi), ("cylinder", 2 * np.pi), ("box", 8.0)])
def test_unit_shapes_are_closed_and_face_outwards(name: str, volume: float) -> None:
    vertices, faces = unit_mesh(name)
    a, b, c = (vertices[faces[:, i]].astype(np.float64) for i in range(3))
    signed = np.einsum("ni,ni->n", a, np.cross(b, c)) / 6
    assert (signed > -1e-9).all()
    assert signed.sum() == pytest.approx(volume, rel=0.05)


@pytest.mark.parametrize("name", BODIES)
def test_every_visible_geom_is_drawn_where_it_is(name: str) -> None:
    env = envs.make(name, threads=1)
    env.reset(seed=0)
    model, poses = env.model, env.poses()
    drawn = body_meshes(model)
    points: dict[int, list[np.ndarray]] = {}
    for batch in drawn.meshes:
        positions, turns = batch.placed(poses)
        for geom, position, turn, scale in zip(batch.geoms, positions, turns, batch.scales, strict=True):
            matrix = np.zeros(9)
            mujoco.mju_quat2Mat(matrix, turn)
            points.setdefault(int(geom), []).append(batch.mesh[0] * scale @ matrix.reshape(3, 3).T + position)
    hidden = [g for g in range(model.ngeom) if model.geom_group[g] >= 3]
    planes = [g for g in range(model.ngeom) if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_PLANE]
    assert points.keys() | set(planes) == set(range(model.ngeom)) - set(hidden) | set(planes)
    for geom, parts in points.items():
        if geom in planes:
            continue
        local = (np.concatenate(parts) - poses.positions[geom]) @ poses.axes[geom]
        centre, half = np.split(np.array(model.geom_aabb[geom]), 2)  # MuJoCo's own box around the geom
        tolerance = 0.02 * half.max()  # a sphere of triangles lies a little inside
        np.testing.assert_allclose(local.max(axis=0), centre + half, atol=tolerance)
        np.testing.assert_allclose(local.min(axis=0), centre - half, atol=tolerance)
    env.close()


def test_a_push_moves_the_body_by_as_much_as_its_joints_allow() -> None:
    env = envs.make("quadruped", threads=1)
    env.reset(seed=0)
    before = env.physics().copy()
    env.push([0.0, 1.5, 0.0])
    change = (env.physics() - before)[0, env.model.nq : env.model.nq + 3]
    np.testing.assert_allclose(change, [0.0, 1.5, 0.0], atol=1e-6)  # free in the air: the whole kick
    assert movable_axes(env.model).all()
    env.close()
    planar = envs.make("walker", threads=1)
    assert movable_axes(planar.model).tolist() == [True, False, True]
    data = mujoco.MjData(planar.model)
    assert np.abs(shove(planar.model, data, np.array([0.0, 3.0, 0.0]))).max() < 1e-9
    assert main_body(planar.model) == planar.model.body("torso").id
    planar.close()


def test_an_environment_without_a_body_is_reported() -> None:
    env = envs.make("gridworld")
    assert env.model is None
    with pytest.raises(ValueError, match="no body"):
        env.poses()
    with pytest.raises(ValueError, match="no body"):
        env.push([1, 0, 0])
