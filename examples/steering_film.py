"""Film an agent while its sliders move, as in the README: python examples/steering_film.py [FILE] (needs OpenGL)."""

import sys

import imageio.v3 as iio
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

import cic

SCENES = (  # weights of speed, upright, height and spin, for four seconds each
    ("walk forward", (0.6, 0.2, 0.5, 0.0)),
    ("stand", (-0.5, 0.5, 0.5, -0.5)),
    ("roll backward", (-1.0, 0.0, 0.0, 0.0)),
    ("sit", (0.0, 1.0, -1.0, 0.0)),
    ("flip", (0.4, 0.0, 0.3, 1.0)),
    ("run", (1.0, 0.3, 0.2, 0.2)),
)
SIZE, PANEL, EVERY, MOVING = 240, 200, 3, 12  # pixels, steps per picture, pictures in which a slider moves


def sliders(quantities, weights, values, text):
    """The panel with one slider per quantity and its present value."""
    picture = Image.new("RGB", (PANEL, SIZE), "white")
    draw, large, small = ImageDraw.Draw(picture), ImageFont.load_default(18), ImageFont.load_default(13)
    draw.text((16, 14), text, "black", large)
    for row, (quantity, weight, value) in enumerate(zip(quantities, weights, values, strict=True)):
        top = 52 + 46 * row
        draw.text((16, top), quantity.name, "black", small)
        draw.text((PANEL - 16, top), f"{value:.1f} {quantity.unit}", "gray", small, anchor="ra")
        draw.line((16, top + 26, PANEL - 16, top + 26), "lightgray", 4)
        x = PANEL / 2 + weight * (PANEL / 2 - 24)
        draw.line((PANEL / 2, top + 26, x, top + 26), "steelblue", 4)
        draw.ellipse((x - 8, top + 18, x + 8, top + 34), "steelblue")
    return np.asarray(picture)


def main(file="steering.webp", seconds=4.0):
    agent, env = cic.load("steer_walker"), cic.envs.make("walker")
    quantities, pictures, before = agent.objective.quantities, [], np.array(SCENES[0][1])
    obs, _ = env.reset(seed=1)
    for text, weights in SCENES:
        for index in range(round(seconds / env.step_seconds / EVERY)):
            shown = before + (np.array(weights) - before) * min(index / MOVING, 1)
            skill = (shown / np.linalg.norm(shown)).astype(np.float32)[None]
            for _ in range(EVERY):
                obs = env.step(agent.act(obs, skill)).obs
            values = agent.objective.values(torch.from_numpy(obs))[0]
            panel = sliders(quantities, shown, values.tolist(), text)
            pictures.append(np.concatenate([panel, env.render(width=SIZE + 80, height=SIZE)], axis=1))
        before = np.array(weights)
    iio.imwrite(file, pictures, duration=1000 * EVERY * env.step_seconds, loop=0, quality=35, method=6)


if __name__ == "__main__":
    main(*sys.argv[1:])
