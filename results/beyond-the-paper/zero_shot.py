"""zero_shot.py RUN: an inferred skill per task (3 episodes) beside 16 random ones (an episode each), in one rollout."""

from __future__ import annotations

import json
import sys

import numpy as np

import cic
from cic import envs
from cic.runs.folder import Run
from cic.training.inference import infer_skill, replayed_states

STATES, EPISODES, RANDOM, SHOWN = 5000, 3, 16, (100, 250, 500, 1000)


def main(run: str) -> None:
    agent, loaded = cic.load(run), Run(run).load_checkpoint()
    assert loaded is not None
    tasks = envs.domains()["walker"].tasks
    labelled = replayed_states(agent, loaded[1]["replay"], tasks, STATES, seed=0)
    assert labelled is not None
    inferred = [np.repeat(infer_skill(agent, labelled, task)[None], EPISODES, axis=0) for task in tasks]
    skills = np.concatenate([*inferred, agent.objective.skills.sample(RANDOM, np.random.default_rng(0))])
    env = envs.make("walker", num_envs=len(skills))
    obs, _ = env.reset(seed=[*range(EPISODES)] * len(tasks) + [*range(RANDOM)])
    totals = {task: np.zeros(len(skills)) for task in tasks}
    for step in range(1, SHOWN[-1] + 1):
        obs, _, _, _, info = env.step(agent.act(obs, skills))
        for task in tasks:
            totals[task] += info["rewards"][task]
        if step in SHOWN:
            found = {}
            for place, (task, total) in enumerate(totals.items()):
                own, others = total[place * EPISODES : (place + 1) * EPISODES], total[len(tasks) * EPISODES :]
                found[task] = {"inferred": own.tolist(), "random mean": others.mean(), "random best": others.max()}
            print(json.dumps({"steps": step} | found), flush=True)


main(sys.argv[1])
