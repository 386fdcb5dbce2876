"""REINFORCE: the card's numbers, both twins against the oracle, a planted fault."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from parity import gate
from parity.arithmetic import operations as op
from parity.lessons import oracle, probes
from parity.objectives import find
from parity.objectives.reinforce import REINFORCE
from parity.points import Points
from parity.problem import Problem
from parity.report import LessonReport
from parity.samples import Samples
from parity.trace import Trace

LESSON = "policy-gradient-kl-control"
FLOAT64_ERROR = 2e-13  # u = 1.1e-16 times a thousand operations on values of order 1

# Nothing like the lesson: five actions, a reference unlike the policy, N no power of two, β > 1.
GENERAL = Problem(
    name="general",
    reinforce=REINFORCE(
        logits=(0.4, -1.0, 0.2, 2.0, 0.0),
        reference_logits=(0.0, 0.3, -0.5, 0.5, 1.0),
        scores=(1.5, -0.5, 3.0, 0.25, -2.0),
        rollouts=6,
        samples=13,
        rate=0.4,
        beta=1.2,
    ),
)


def tape_for(problem: Problem, seed: int = 3) -> Samples:
    """Any actions will do: a tape is replayed, whoever drew it."""
    assert problem.reinforce is not None
    shape, actions = (problem.reinforce.rollouts, problem.reinforce.samples), 5
    return Samples(
        actions=np.random.default_rng(seed).integers(0, actions, shape),
        behaviour=np.zeros((shape[0], actions), np.float32),
        problem=problem.name,
        problem_digest=problem.digest,
        seed=seed,
        sampler="jax",
        versions={},
    )


def core() -> Points:
    return probes.core(find("reinforce"))


def judge(
    problem: Problem,
    samples: Samples,
    traces: dict[str, Trace],
    evaluations: dict[str, Trace],
    dtype: str = "float32",
) -> LessonReport:
    return gate.judge(
        gate.Case(
            problem=problem,
            samples=samples,
            dtype=dtype,
            traces=traces,
            steps={
                name: gate.rederive(problem, samples, trace, dtype)
                for name, trace in traces.items()
            },
            trajectory=gate.whole_run(problem, samples, dtype),
            grids=[(core(), gate.evaluate_points(core(), dtype))] if evaluations else [],
            evaluations={name: [trace] for name, trace in evaluations.items()},
        )
    )


def kl_to_even(logits: np.ndarray) -> np.ndarray:
    """KL(π ‖ [0.5, 0.5]) = log 2 - H(π)."""
    logps = op.log_softmax(logits)
    return np.log(2) + np.exp(logps) @ logps


@pytest.fixture
def lesson(problems: dict[str, Problem]) -> REINFORCE:
    found = problems[LESSON].reinforce
    assert found is not None
    return found


def test_the_lesson_starts_at_the_pair_of_the_card(
    lesson: REINFORCE, trace_of: Callable[..., Trace], implementation: str
) -> None:
    """policy-gradient-kl-control.card.json: KL([0.7, 0.3] ‖ [0.5, 0.5]) is 0.082283 nats."""
    start = op.log_softmax(np.asarray(lesson.logits))
    np.testing.assert_allclose(np.exp(start), [0.7, 0.3], atol=1e-8)
    trace = trace_of(LESSON, implementation)
    np.testing.assert_allclose(np.exp(trace["reinforce/reference"][0]), [0.5, 0.5], atol=1e-7)
    assert kl_to_even(start) == pytest.approx(0.082283, abs=5e-7)
    assert trace["reinforce/reference_kl"][0] == pytest.approx(0.082283, abs=6e-7)
    assert trace["reinforce/kl_penalty"][0] == trace["reinforce/reference_kl"][0]
    # 0.7 · 1 + 0.3 · (-1)
    assert trace["reinforce/expected_reward"][0] == pytest.approx(0.4, abs=1e-6)


def test_reward_rises_and_the_kl_holds_it_near_the_optimum(
    lesson: REINFORCE, trace_of: Callable[..., Trace], tapes: dict[str, Samples]
) -> None:
    """Closed form for two actions: the best log-odds are (r₀ - r₁)/β, here 2/0.8 = 2.5."""
    trace = trace_of(LESSON, "jax")
    rewards, kls = trace["reinforce/expected_reward"], trace["reinforce/reference_kl"]
    best = 1 / (1 + np.exp(-2.5))
    optimum = (2 * best - 1) - 0.8 * kl_to_even(np.array([2.5, 0]))
    objective = rewards - 0.8 * kls
    assert rewards[-10:].min() > 0.75  # from 0.4; 0.848 at the optimum
    assert (objective <= optimum + 1e-6).all()
    assert optimum - objective[-1] < 0.01 < optimum - objective[0]
    free = Problem(
        name="free",
        reinforce=REINFORCE(
            logits=lesson.logits,
            scores=lesson.scores,
            reference_logits=lesson.reference_logits,
            rollouts=lesson.rollouts,
            samples=lesson.samples,
            rate=lesson.rate,
            beta=0.0,
        ),
    )
    *_, last, _ = oracle.trajectory(free, tapes[LESSON].actions, "float32", np.asarray)
    assert last.values["reinforce/reference_kl"] > kls.max() + 0.1  # nothing else holds it


def test_the_lesson_matches(
    problems: dict[str, Problem],
    tapes: dict[str, Samples],
    trace_of: Callable[..., Trace],
    evaluate: Callable[..., Trace],
) -> None:
    report = judge(
        problems[LESSON],
        tapes[LESSON],
        {name: trace_of(LESSON, name) for name in ("jax", "torch")},
        {name: evaluate(name, core()) for name in ("jax", "torch")},
    )
    assert (report.verdict, report.first_divergence) == ("match", None)


@pytest.mark.usefixtures("x64")
def test_a_general_problem_matches_in_float64(backend: Callable[[str], Any]) -> None:
    samples = tape_for(GENERAL)
    traces = {name: backend(name).train(GENERAL, samples, "float64") for name in ("jax", "torch")}
    comparisons = judge(GENERAL, samples, traces, {}, "float64").comparisons
    assert {comparison.verdict for comparison in comparisons} == {"match"}
    assert {comparison.mode for comparison in comparisons} == {"step", "trajectory"}


@pytest.mark.parametrize("size", ["2 x 1", "7 x 2", "128 x 1000"])
def test_every_size_of_the_grid_stays_within_the_allowance(
    evaluate: Callable[..., Trace], implementation: str, size: str
) -> None:
    (grid,) = (p for p in probes.grid_of(find("reinforce")) if p.grid == size)
    trace, expected = evaluate(implementation, grid), gate.evaluate_points(grid, "float32")
    for name, values in expected.values.items():
        difference = np.abs(trace[name].astype(np.float64) - values)
        assert (difference <= expected.allowed[name]).all(), name


def test_any_constant_baseline_gives_the_gradient_of_the_expected_reward(
    evaluate: Callable[..., Trace], implementation: str
) -> None:
    """design.md: Σ π(a) ∇log π(a) (r(a) - c) = ∇ Σ π(a) r(a) for every constant c.

    The mean over one sample per action of K π(a) (r(a) - c) ∇log π(a) is that sum, enumerated;
    on the right, π (r - Σ π r).
    """
    logits, scores = np.array([0.3, -0.2, 0.1]), np.array([1.0, -2.0, 4.0])
    policy = np.exp(op.log_softmax(logits))
    baselines = np.array([0.0, policy @ scores, 1.0, -3.7, 100.0])
    count = len(baselines)
    enumerated = Points(
        "reinforce",
        "baselines",
        tuple(f"baseline {baseline}" for baseline in baselines),
        {
            "logits": np.tile(logits, (count, 1)),
            "actions": np.tile(np.arange(3), (count, 1)),
            "advantages": 3 * policy * (scores - baselines[:, None]),
            "reference": np.tile(np.log([1 / 3] * 3), (count, 1)),
            "beta": np.zeros(count),
        },
    )
    trace = evaluate(implementation, enumerated, "float64")
    found = -trace["reinforce/gradient"]
    expected = np.tile(policy * (scores - policy @ scores), (count, 1))
    np.testing.assert_allclose(found, expected, rtol=0, atol=FLOAT64_ERROR)


def attached(implementation: str) -> Callable[..., Any]:
    """The loss with its advantages not detached, so that the gradient reaches the baseline."""
    if implementation == "jax":
        numpy, log_softmax = import_module("jax.numpy"), import_module("jax").nn.log_softmax
        freeze = import_module("jax").lax.stop_gradient
    else:
        numpy = import_module("torch")

        def log_softmax(logits: Any) -> Any:
            return numpy.log_softmax(logits, dim=0)

        def freeze(value: Any) -> Any:
            return value.detach()

    terms = import_module(f"parity.{implementation}_impl.reinforce").Terms

    def loss(logits: Any, actions: Any, advantages: Any, reference: Any, beta: Any) -> Any:
        logps = log_softmax(logits)
        taken = logps[actions]
        surrogate = numpy.mean(taken * advantages)
        kl_penalty = numpy.sum(numpy.exp(logps) * (logps - freeze(reference)))
        return -surrogate + beta * kl_penalty, terms(taken, surrogate, kl_penalty)

    return loss


def test_a_baseline_that_is_not_detached_is_caught(
    problems: dict[str, Problem],
    tapes: dict[str, Samples],
    backend: Callable[[str], Any],
    trace_of: Callable[..., Trace],
    evaluate: Callable[..., Trace],
    implementation: str,
) -> None:
    """Every value agrees; only the gradient to what must be frozen tells."""
    traces = {name: trace_of(LESSON, name) for name in ("jax", "torch")}
    evaluations = {name: evaluate(name, core()) for name in traces}
    faulty = backend(implementation)
    honest = import_module(f"parity.{implementation}_impl.reinforce").PIECES
    pieces = {"reinforce": honest._replace(loss=attached(implementation))}
    traces[implementation] = faulty.train(problems[LESSON], tapes[LESSON], "float32", pieces)
    evaluations[implementation] = faulty.evaluate(core(), "float32", pieces["reinforce"].loss)
    report = judge(problems[LESSON], tapes[LESSON], traces, evaluations)
    first = report.first_divergence
    assert first is not None
    assert (report.verdict, report.blamed) == ("divergent", [implementation])
    assert first.quantity == "reinforce/gradient_advantages"
    assert (first.left, first.right, first.at) == (implementation, "oracle", {"rollout": 0})
    parted = {c.quantity for c in report.comparisons if c.verdict != "match"}
    assert parted == {"reinforce/gradient_advantages"}


def test_drawing_again_gives_the_recorded_tape(
    problems: dict[str, Problem],
    tapes: dict[str, Samples],
    backend: Callable[[str], Any],
    trace_of: Callable[..., Trace],
) -> None:
    again, recorded = backend("jax").draw(problems[LESSON], 7), tapes[LESSON]
    assert again.first_difference(recorded) is None
    assert (again.problem_digest, again.seed) == (recorded.problem_digest, recorded.seed)
    np.testing.assert_allclose(again.behaviour, recorded.behaviour, atol=1e-6)
    taken = np.take_along_axis(recorded.behaviour, recorded.actions, axis=1)
    np.testing.assert_allclose(trace_of(LESSON, "jax")["reinforce/logps"], taken, atol=1e-6)


def test_torch_draws_from_the_policy_as_it_trains(backend: Callable[[str], Any]) -> None:
    samples = backend("torch").draw(GENERAL, 5)
    samples.check(GENERAL, "drawn")
    trace = backend("torch").train(GENERAL, samples)
    taken = np.take_along_axis(samples.behaviour, samples.actions, axis=1)
    np.testing.assert_allclose(trace["reinforce/logps"], taken, atol=1e-6)
    assert samples.first_difference(backend("torch").draw(GENERAL, 6)) is not None


def test_digests_of_problems_without_it_stay(
    problems: dict[str, Problem], tapes: dict[str, Samples]
) -> None:
    """The tape of lesson 04 was drawn before there was a [reinforce] table; its header says so."""
    recorded = "f7bd2f10556cca78f30acc5ecf65b49a829ed6b1dc7bc6f2f003507b4201a335"
    assert tapes["posttraining-04"].problem_digest == recorded
    assert problems["posttraining-04"].digest == recorded
    assert tapes[LESSON].problem_digest == problems[LESSON].digest
