"""What the probe makes of plays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent_env.authoring.findings import Finding, find, summarize
from agent_env.authoring.oracle import Oracle
from agent_env.authoring.plays import Play
from agent_env.training.policies import end_turn

ORACLE = Oracle(policies={"oracle": end_turn})


def play(policy: str, index: int, reward: float | None, *, seen: Sequence[str] = ("ok",), errors: int = 0) -> Play:
    failed = reward is None
    return Play(
        policy=policy,
        index=index,
        task=f"@local/b/task-{index}",
        reward=reward,
        end_reason="unscored" if failed else "end_turn",
        error="the verifier raised" if failed else None,
        scores={} if reward is None else {"score": reward},
        seen=tuple(seen),
        seconds=0.1,
        tool_errors=errors,
    )


def kinds(plays: Sequence[Play], oracle: Oracle = ORACLE, *, whole: bool = True) -> list[str]:
    return [finding.kind for finding in find(plays, oracle, whole=whole, replayable={})]


SOUND = [play("no-op", 0, 0.0), play("random", 0, 0.2), play("oracle", 0, 1.0), play("oracle", 0, 1.0)]


def test_a_sound_bundle_has_no_finding() -> None:
    assert kinds(SOUND) == []


def test_an_unscored_play_is_found_with_its_reason() -> None:
    (finding,) = find([*SOUND, play("random", 1, None)], ORACLE, whole=True, replayable={})
    assert finding.kind == "unscored"
    assert "the verifier raised" in finding.what
    assert finding.tasks == ("@local/b/task-1",)


def test_one_reward_for_everything_is_found() -> None:
    assert "constant" in kinds([play("no-op", 0, 0.5), play("oracle", 0, 0.5)])


@pytest.mark.parametrize("policy", ["no-op", "random"])
def test_an_untrained_policy_that_scores_as_the_oracle_does_is_found(policy: str) -> None:
    (finding,) = find([*SOUND, play(policy, 1, 1.0), play("oracle", 1, 1.0)], ORACLE, whole=True, replayable={})
    assert (finding.kind, finding.tasks) == ("hack", ("@local/b/task-1",))


def test_another_policy_of_the_author_may_score_as_the_oracle_does() -> None:
    assert kinds([*SOUND, play("greedy", 0, 1.0)]) == []


def test_other_results_or_scores_of_the_same_calls_are_found() -> None:
    assert kinds([*SOUND, play("oracle", 0, 1.0, seen=("other",))]) == ["nondeterministic"]
    assert kinds([*SOUND, play("oracle", 0, 1.0, seen=("ok", "more"))]) == ["nondeterministic"]
    assert kinds([*SOUND, play("oracle", 0, 0.9)]) == ["nondeterministic"]


def test_a_task_that_is_not_replayable_need_not_play_alike() -> None:
    plays = [*SOUND, play("oracle", 0, 1.0, seen=("other",))]
    assert find(plays, ORACLE, whole=True, replayable={0: False}) == []


def test_a_mean_other_than_the_documented_one_is_found_when_all_was_played() -> None:
    oracle = Oracle(policies={"oracle": end_turn}, scores={"oracle": 0.9, "no-op": 0.0})
    assert kinds(SOUND, oracle) == ["score"]
    assert kinds(SOUND, oracle, whole=False) == []
    assert kinds(SOUND, Oracle(policies={"oracle": end_turn}, scores={"oracle": 1.0004})) == []


def test_a_documented_policy_that_there_is_not_is_found() -> None:
    assert kinds(SOUND, Oracle(policies={"oracle": end_turn}, scores={"orakel": 1.0})) == ["score"]


def test_an_oracle_whose_calls_fail_is_found() -> None:
    assert kinds([*SOUND, play("oracle", 0, 1.0, errors=2)]) == ["oracle"]
    assert kinds([*SOUND, play("random", 0, 0.2, errors=2), play("greedy", 0, 0.5, errors=1)]) == []


def test_without_an_oracle_nothing_is_held_against_one() -> None:
    assert kinds([play("no-op", 0, 0.0), play("random", 0, 1.0)], Oracle()) == []


def test_a_summary_counts_scored_and_unscored_plays_apart() -> None:
    summaries = summarize([play("no-op", 0, 0.0), play("no-op", 1, 1.0), play("no-op", 2, None)])
    assert [(one.mean, one.plays, one.unscored, one.rewards) for one in summaries] == [(0.5, 3, 1, (0.0, 1.0))]
    assert summarize([play("no-op", 0, None)])[0].mean is None


def test_a_finding_names_a_few_tasks_and_counts_the_rest() -> None:
    tasks = tuple(f"@local/b/task-{number}" for number in range(7))
    assert str(Finding("hack", "what", "fix", tasks)) == (
        "hack: what (task-0, task-1, task-2, task-3, task-4 and 2 more): fix"
    )
