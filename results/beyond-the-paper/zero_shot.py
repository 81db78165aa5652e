"""zero_shot.py RUN: an inferred skill per task beside 16 random ones, ten episodes each from the same starts."""

from __future__ import annotations

import json
import sys

import numpy as np

import cic
from cic import envs
from cic.runs.folder import Run
from cic.training.evaluation import rollout
from cic.training.zero_shot import infer_skill, replayed_states

STATES, EPISODES, RANDOM = 5000, 10, 16


def main(run: str) -> None:
    agent, loaded = cic.load(run), Run(run).load_checkpoint()
    assert loaded is not None
    domain = Run(run).config["domain"]
    tasks = envs.domains()[domain].tasks
    labelled = replayed_states(agent, loaded[1]["replay"], tasks, STATES, seed=0)
    assert labelled is not None
    inferred = np.stack([infer_skill(agent, labelled, task) for task in tasks])
    skills = np.concatenate([inferred, agent.objective.skills.sample(RANDOM, np.random.default_rng(0))])
    env = envs.make(domain, num_envs=len(skills) * EPISODES)
    found = rollout(agent, env, np.repeat(skills, EPISODES, axis=0), seed=[*range(EPISODES)] * len(skills)).returns
    env.close()
    for place, task in enumerate(tasks):
        returns = found[task].reshape(len(skills), EPISODES)
        random = returns[len(tasks) :].mean(axis=1)
        told = {"inferred": returns[place].tolist(), "random mean": random.mean(), "random best": random.max()}
        print(json.dumps({"task": task, "inferred mean": returns[place].mean()} | told), flush=True)


main(sys.argv[1])
