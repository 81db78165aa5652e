"""Configs: to JSON and back without loss, strict about keys, types and ranges; scales and overrides."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from cic.core.config import from_dict, to_dict
from cic.core.errors import UserError, unknown
from cic.learning.learners import LearnerConfig, get_learner, learners
from cic.learning.learners.ddpg import DDPGConfig
from cic.learning.objectives import get_objective, objectives
from cic.training.settings import (
    SCALES,
    FinetuneConfig,
    FinetuneSettings,
    PretrainConfig,
    SearchConfig,
    config_from_dict,
    finetune_defaults,
    override,
    pretrain_defaults,
)

NAMES = sorted(name for name, _ in objectives())
LEARNERS = sorted(learners())
CONFIGS = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}


def finetune_config(name: str, learner: str = "ddpg", **changes: Any) -> FinetuneConfig[Any, Any]:
    given_settings = finetune_defaults("walker-run", "smoke", learner)
    shared = {field.name: getattr(given_settings, field.name) for field in dataclasses.fields(given_settings)}
    origin = {"objective": name, "pretrained": "runs/x", "pretrain_steps": 400, "pretrain_seed": 3}
    return FinetuneConfig(**(shared | origin | changes), options=get_objective(name).Options())


def there_and_back(kind: str, config: Any) -> Any:
    return config_from_dict(CONFIGS[kind], json.loads(json.dumps(to_dict(config))))


# ---- any values ------------------------------------------------------------------------------------------------


def values(hint: Any, default: Any) -> st.SearchStrategy[Any]:
    """Something of the field's type, mostly in range."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(1, 10**9)
    if hint is float:
        return st.floats(1e-6, 1.0)
    return st.just(default)


@st.composite
def changed(draw: st.DrawFn, config: Any) -> Any:
    """The config with each field of simple type replaced; combinations that are refused keep their default."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        current = getattr(config, field.name)
        if dataclasses.is_dataclass(current):
            value = draw(changed(current))
        else:
            value = draw(values(hints[field.name], current))
        try:
            config = dataclasses.replace(config, **{field.name: value})
        except UserError:
            continue
    return config


@st.composite
def pretrain_configs(draw: st.DrawFn) -> PretrainConfig[Any, Any]:
    name = draw(st.sampled_from(NAMES))
    scale = draw(st.sampled_from(sorted(SCALES)))
    domain = "walker" if name == "steer" else draw(st.text(max_size=8))  # steer asks the environment for quantities
    config: Any = pretrain_defaults(domain, name, scale, learner=draw(st.sampled_from(LEARNERS)))
    config = dataclasses.replace(config, options=draw(changed(config.options)), learning=draw(changed(config.learning)))
    return dataclasses.replace(  # type: ignore[no-any-return]
        config,
        seed=draw(st.integers(0, 2**31 - 1)),
        steps=draw(st.integers(8, 2**40)),
        milestones=tuple(draw(st.lists(st.integers(0, 10**7), max_size=4))),
    )


@given(pretrain_configs())
@settings(steady, max_examples=100)
def test_any_pretraining_survives_json(config: PretrainConfig[Any, Any]) -> None:
    again = there_and_back("pretrain", config)
    assert to_dict(again) == to_dict(config)
    assert again.options == config.options
    assert type(again.options) is type(config.options)
    assert again.learning == config.learning
    assert type(again.learning) is type(config.learning) is get_learner(config.learner).Config
    assert isinstance(again, PretrainConfig)
    assert isinstance(again.milestones, tuple)


@given(
    name=st.sampled_from(NAMES),
    learner=st.sampled_from(LEARNERS),
    skill=st.none() | st.lists(st.floats(0, 1), max_size=5).map(tuple),
    selection=changed(SearchConfig()),
    critic=st.sampled_from(["trunk", "all", "none"]),
    seed=st.none() | st.integers(0, 99),
)
@settings(steady, max_examples=60)
def test_any_finetuning_survives_json(
    name: str, learner: str, skill: Any, selection: Any, critic: str, seed: int | None
) -> None:
    config = finetune_config(name, learner, skill=skill, selection=selection, critic=critic, pretrain_seed=seed)
    again = there_and_back("finetune", config)
    assert to_dict(again) == to_dict(config)
    assert again.learning == config.learning
    assert isinstance(again, FinetuneConfig)


def paths(data: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where each object inside is."""
    inner = [path for key, value in data.items() if isinstance(value, dict) for path in paths(value, (*prefix, key))]
    return [prefix, *inner]


@given(st.data(), st.text(min_size=1, max_size=12))
@settings(steady, max_examples=60)
def test_an_unknown_key_anywhere_is_an_error_that_names_it(data: st.DataObject, key: str) -> None:
    raw = json.loads(json.dumps(to_dict(pretrain_defaults("walker", "cic", "smoke"))))
    owner = raw
    for step in data.draw(st.sampled_from(paths(raw))):
        owner = owner[step]
    if key in owner:
        return
    owner[key] = 1
    with pytest.raises(UserError) as caught:
        config_from_dict(PretrainConfig, raw)
    assert "".join(c if c.isprintable() or c == "\n" else "�" for c in key) in str(caught.value)


@given(st.data())
@settings(steady, max_examples=100)
def test_a_value_of_the_wrong_type_anywhere_is_an_error_that_names_its_place(data: st.DataObject) -> None:
    raw = json.loads(json.dumps(to_dict(pretrain_defaults("walker", "cic", "smoke"))))
    owner = raw
    for step in data.draw(st.sampled_from(paths(raw))):
        owner = owner[step]
    key = data.draw(st.sampled_from(sorted(owner)))
    wrong: Any = "no" if not isinstance(owner[key], str) else 7
    if isinstance(owner[key], bool):
        wrong = data.draw(st.sampled_from(["no", 1, None]))
    owner[key] = data.draw(st.sampled_from([wrong, {"a": wrong}]))
    with pytest.raises(UserError) as caught:
        config_from_dict(PretrainConfig, raw)
    assert key in str(caught.value)


# ---- particular ones -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"objective": "cicc"}, 'unknown objective "cicc"; did you mean "cic"'),
        ({"objective": None}, "unknown objective"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 1.5}, "steps must be int"),
        ({"steps": True}, "steps must be int"),
        ({"seed": -1}, r"seed must lie in"),
        ({"seed": 2**31}, r"seed must lie in"),
        ({"learner": "sca"}, 'unknown learner "sca"; did you mean "sac"'),
        ({"learner": "sac"}, 'unknown field of config.learning "noise'),
        ({"wandb": 1}, "wandb must be bool"),
        ({"scale": "huge"}, "config.scale"),
        ({"milestones": 5}, "milestones must be a list"),
        ({"milestones": [1.5]}, "milestones must be int"),
        ({"learning": [1]}, "learning must be an object"),
        ({"options": 3}, "options must be an object"),
        ({"options": {"loss": "hinge"}}, "config.options.loss"),
    ],
)
def test_what_a_config_must_not_be(change: dict[str, Any], word: str) -> None:
    raw = json.loads(json.dumps(to_dict(pretrain_defaults("walker", "cic", "smoke"))))
    with pytest.raises(UserError, match=word.replace(".", r"\.")):
        config_from_dict(PretrainConfig, raw | change)


def test_missing_fields_are_named() -> None:
    with pytest.raises(UserError, match="lacks learning, domain, options"):
        config_from_dict(PretrainConfig, {"objective": "cic", "learner": "ddpg"})
    with pytest.raises(UserError, match="must be an object"):
        from_dict(LearnerConfig, [1, 2])


def test_a_whole_number_is_a_float_where_one_is_asked_for() -> None:
    config = from_dict(LearnerConfig, {"lr": 1})
    assert config.lr == 1.0
    assert isinstance(config.lr, float)


def test_unknown_names_suggest_a_near_one_or_list_all() -> None:
    assert str(unknown("task", "wlak", ["walk", "run"])) == 'unknown task "wlak"; did you mean "walk"?'
    assert str(unknown("task", "xyz", ["walk", "run"])) == 'unknown task "xyz"; choose one of: run, walk'


# ---- scales and overrides --------------------------------------------------------------------------------------


def test_the_paper_scale_has_the_papers_numbers() -> None:
    config = pretrain_defaults("walker", "cic", "paper")
    assert config.learning == DDPGConfig(hidden=1024, batch=1024, lr=1e-4, noise=0.2, noise_clip=0.3, nstep=3, tau=0.01)
    assert (config.steps, config.warmup, config.update_every) == (2_000_000, 4_000, 2)
    assert (config.num_envs, config.replay, config.milestones) == (
        1,
        1_000_000,
        (100_000, 500_000, 1_000_000, 2_000_000),
    )
    tuned = finetune_defaults("walker-run", "paper")
    assert (tuned.steps, tuned.warmup, tuned.eval_every, tuned.eval_episodes) == (100_000, 4_000, 10_000, 10)
    assert (tuned.selection.search, tuned.selection.trial_steps, tuned.selection.search_value) == ("auto", 100, 0.5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", sorted(SCALES))
@pytest.mark.parametrize("learner", LEARNERS)
def test_every_method_has_defaults_at_every_scale_that_fit_together(name: str, scale: str, learner: str) -> None:
    before = pretrain_defaults("walker", name, scale, learner=learner)
    after = finetune_defaults("walker-run", scale, learner)
    assert before.scale == after.scale == scale
    assert before.learner == after.learner == learner
    assert before.learning.hidden == after.learning.hidden, "finetuning at a scale must accept a pre-training there"
    assert after.warmup < after.steps
    assert before.warmup < before.steps


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", sorted(SCALES))
def test_a_presets_recommendations_hold_except_for_the_scales_own_sizes(name: str, scale: str) -> None:
    cls = get_objective(name)
    assert set(cls.recommended) <= set(cls.presets)
    for preset in cls.presets:
        wanted = cls.recommended.get(preset, {})
        config = pretrain_defaults("walker", name, scale, preset)
        assert config.learner == wanted.get("learner", "ddpg")
        sizes = SCALES[scale]["pretrain"]["learning"]
        for field, value in (wanted.get("learning", {}) | sizes).items():
            assert getattr(config.learning, field) == value, field
        for field, value in wanted.get("run", {}).items():
            assert (getattr(config, field) == value) == (scale == "paper"), field
        other = pretrain_defaults("walker", name, scale, preset, "td3")
        assert other.learning == pretrain_defaults("walker", "icm", scale, learner="td3").learning


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("learner", LEARNERS)
def test_no_two_settings_share_a_name(name: str, learner: str) -> None:
    """Flags are flat: `--lr`, not `--learning.lr`."""
    config = pretrain_defaults("walker", name, "smoke", learner=learner)
    parts = [config, config.learning, config.options]
    flat = [field.name for part in parts for field in dataclasses.fields(part)]
    assert len(flat) == len(set(flat))


@pytest.mark.parametrize("learner", LEARNERS)
def test_no_two_settings_of_finetuning_share_a_name(learner: str) -> None:
    config = finetune_defaults("walker-run", "smoke", learner)
    parts = [config, config.learning, config.selection]
    flat = [field.name for part in parts for field in dataclasses.fields(part)]
    assert len(flat) == len(set(flat))


def test_override_reaches_every_part() -> None:
    config = override(pretrain_defaults("walker", "cic", "smoke"), {"steps": 7, "lr": 0.5, "temperature": 0.1})
    assert (config.steps, config.learning.lr, config.options.temperature) == (7, 0.5, 0.1)
    tuned = override(finetune_defaults("walker-run", "smoke"), {"search": "cem", "critic": "all", "hidden": 8})
    assert isinstance(tuned, FinetuneSettings)
    assert (tuned.selection.search, tuned.critic, tuned.learning.hidden) == ("cem", "all", 8)


def test_override_refuses_what_there_is_not() -> None:
    with pytest.raises(UserError, match='unknown setting "temprature"; did you mean "temperature"'):
        override(pretrain_defaults("walker", "cic", "smoke"), {"temprature": 0.1})
    with pytest.raises(UserError, match='unknown setting "temperature"'):
        override(pretrain_defaults("walker", "rnd", "smoke"), {"temperature": 0.1})
    with pytest.raises(UserError, match=r"options is a group of settings, not \{'temperature': 0.1\}"):
        override(pretrain_defaults("walker", "cic", "smoke"), {"options": {"temperature": 0.1}})


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("walker", "cic", "hugee"), 'unknown scale "hugee"'),
        (("walker", "cci", "smoke"), 'unknown objective "cci"'),
        (("walker", "cic", "smoke", None, "tdd3"), 'unknown learner "tdd3"; did you mean "td3"'),
        (("walker", "cic", "smoke", "pape"), 'unknown preset of cic "pape"; did you mean "paper"'),
    ],
)
def test_unknown_defaults_are_refused(arguments: tuple[Any, ...], word: str) -> None:
    with pytest.raises(UserError, match=word):
        pretrain_defaults(*arguments)


def test_a_preset_fills_the_options() -> None:
    assert pretrain_defaults("walker", "cic", "smoke", "paper").options.loss == "infonce"
    assert pretrain_defaults("walker", "cic", "paper").options.loss == "released"
