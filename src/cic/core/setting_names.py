"""The names of a run's settings. Options of objectives and learners are set in the same way and need other names."""

from __future__ import annotations

import dataclasses

from cic.core.errors import UserError

_NAMES = """
checkpoint_every compile device env_timeout keep_physics learner learning log_every num_envs objective options replay
scale seed steps threads update_every wandb wandb_entity wandb_group wandb_project wandb_tags warmup
workers normalise_obs
diagnosed domain pretrain_problems library library_starts library_steps milestones preset
check_steps critic critic_updates eval_episodes eval_every eval_steps eval_timeout pretrain_seed pretrain_steps
pretrained prior_data selection skill task
data data_steps reward_formula states
finalists search search_steps search_value trial_skip trial_steps
action_repeat auxiliary encoder_gradients encoding frame_stack image_features image_size objective_keys pixels shift
at out quiet resume run runs scratch seeds start trust
"""
RUN_SETTINGS = frozenset(_NAMES.split())
"""The settings of runs, of pre-training, finetuning, offline training and the skill search, and the arguments of the
commands that train."""


def require_free_names(owner: str, options: type) -> None:
    """Refuse options with the name of a run's setting, which would take precedence.

    Args:
        owner: The objective or learner, for the error message.
        options: The dataclass of its options.
    """
    for field in dataclasses.fields(options):
        if field.name in RUN_SETTINGS:
            raise UserError(
                f'{owner} cannot be registered: its option "{field.name}" has the name of a setting of every run, '
                "which would take precedence; rename the option"
            )
