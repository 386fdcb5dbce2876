import dataclasses
import math
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from parity.arithmetic.measure import Expected
from parity.cli.run_command import _draw
from parity.comparison import Divergence, Entry
from parity.faults import LAYERS, Known, Outcome
from parity.figures.agreement import curves, draw_curves, draw_distances, render_agreement
from parity.figures.check import redraw
from parity.figures.clipping import Clipped, clipped, draw_counts, draw_surrogate, render_clipping
from parity.figures.faults import draw_faults, render_faults
from parity.figures.gallery import drawings as drawings_of
from parity.figures.margins import FLOOR, draw_margins, margins, render_margins
from parity.figures.record import record
from parity.gate import Case
from parity.objectives import find
from parity.objectives.dpo import DPO
from parity.objectives.ppo import PPO
from parity.objectives.reinforce import REINFORCE
from parity.objectives.reward import Reward
from parity.objectives.spec import Fault
from parity.problem import Problem
from parity.quantities import expected
from parity.report import LessonReport
from parity.trace import Quantity, Trace

BANDIT = Problem(
    name="bandit",
    reward=Reward(features=((1.0,), (0.0,)), preferences=((0, 1),), updates=3, rate=0.1),
    ppo=PPO(logits=(0.0, 0.0), rollouts=3, samples=4, epochs=2, rate=0.1, beta=0.2, clip=0.25),
)
PAIRS = Problem(
    name="pairs",
    dpo=DPO(logits=(0.0, 0.0), preferences=((0, 1),) * 40, updates=5, rate=0.4, beta=0.3),
)
SCORES = Problem(
    name="score-function",
    reinforce=REINFORCE(
        logits=(0.0,) * 12, scores=(1.0,) * 12, rollouts=1, samples=5, rate=0.1, beta=0.2
    ),
)
ALLOWED = 2.0**-20
EPOCH = "1970-01-01T00:00:00+00:00"
ENVIRONMENT = {"backend": "cpu", "deviceCount": "1", "jax": "1", "torch": "2", "numpy": "3"}


def make_case(problem: Problem, **changed: Any) -> Case:
    """Both implementations hold the oracle's values, all 1, except those given by quantity.

    A value is `{(implementation, *index): difference in allowances}`, or `{None: array}`, which
    replaces the quantity for everyone.
    """
    shapes = expected(problem)
    exact = {
        spec.name: np.asarray(changed.get(spec.name, {}).get(None, np.ones(shape)), np.float64)
        for spec, shape in shapes.items()
    }
    traces = {}
    for name in ("jax", "torch"):
        quantities = {}
        for spec in shapes:
            values = exact[spec.name].copy()
            for place, difference in changed.get(spec.name, {}).items():
                if place is not None and place[0] == name:
                    values[place[1:]] += difference * ALLOWED
            quantities[spec.name] = Quantity(spec.name, spec.axes, spec.kind, values)
        traces[name] = Trace(name, "float32", quantities, environment=ENVIRONMENT)
    allowed = {name: np.full(array.shape, ALLOWED) for name, array in exact.items()}
    oracle = Expected(exact, allowed, {})
    return Case(problem, None, "float32", traces, dict.fromkeys(traces, oracle), oracle)


def make_axes(wide: float = 5.5, high: float = 2.0) -> Any:
    figure = Figure(figsize=(wide / 0.8, high / 0.6), dpi=72)
    FigureCanvasAgg(figure)
    return figure.add_axes((0.1, 0.2, 0.8, 0.6))


# --- agreement --------------------------------------------------------------------------------


def test_curves_are_those_of_the_record_with_their_allowances() -> None:
    case = make_case(BANDIT, **{"ppo/expected_reward": {("torch", 2): 0.5}})
    reward, kl = curves(case)
    assert (reward.ylabel, kl.ylabel) == ("expected learned reward", "KL to reference (nats)")
    assert reward.x.tolist() == [1, 2, 3]
    assert reward.allowed.tolist() == [ALLOWED] * 3
    assert reward.others["torch"].tolist() == [1, 1 + ALLOWED / 2, 1]
    assert [len(list(curves(make_case(p)))) for p in (PAIRS, SCORES)] == [1, 2]


def test_agreement_draws_everyone_over_oracle_and_band() -> None:
    curve = next(curves(make_case(BANDIT, **{"ppo/expected_reward": {("torch", 2): 0.5}})))
    axes = make_axes()
    assert draw_curves(axes, curve) is axes
    assert [line.get_label() for line in axes.lines] == ["oracle", "JAX", "PyTorch"]
    axes = make_axes()
    assert draw_distances(axes, curve) is axes
    assert axes.lines[-1].get_ydata().tolist() == [0, ALLOWED / 2, 0]
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).intervaly.tolist() == [-ALLOWED, ALLOWED]
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in axes.lines}) > 1


# --- margins ----------------------------------------------------------------------------------


def test_margins_are_the_largest_of_all_quantities_at_each_step() -> None:
    found = margins(
        make_case(
            BANDIT,
            **{
                "ppo/gradient": {("jax", 1, 0, 1): 0.5, ("jax", 2, 1, 0): -0.25},
                "ppo/loss": {("jax", 1, 0): -0.125},
                "ppo/expected_reward": {("torch", 0): 0.5, ("torch", 1): 2.0},
                "ppo/probabilities": {("torch", 1): 0.75},
                "ppo/actions": {("torch", 0, 0): 9.0},  # integers have no allowance
                "reward/weights": {("jax", 2, 0): 0.5},
            },
        )
    )
    assert list(found) == ["reward", "ppo"]
    assert found["reward"]["jax"].ratios.tolist() == [0, 0, 0.5]
    assert found["reward"]["torch"].largest == 0
    # updates 0 … 5 are (rollout, epoch); checkpoint 0 precedes them, checkpoint 1 follows update 1
    assert found["ppo"]["jax"].ratios.tolist() == [0, 0, 0.5, 0, 0, 0.25]
    assert found["ppo"]["jax"].worst == "ppo/gradient"
    assert found["ppo"]["torch"].ratios.tolist() == [0.5, 2, 0, 0, 0, 0.75]
    assert found["ppo"]["torch"].worst == "ppo/expected_reward"


def test_margins_of_the_other_objectives() -> None:
    (dpo,) = margins(make_case(PAIRS, **{"dpo/margins": {("jax", 4, 39): 0.5}})).values()
    assert dpo["jax"].ratios.tolist() == [0, 0, 0, 0, 0.5]
    (reinforce,) = margins(make_case(SCORES, **{"reinforce/loss": {("jax", 0): 0.5}})).values()
    assert reinforce["jax"].ratios.tolist() == [0.5]


def test_what_was_not_rederived_is_left_out_and_nan_is_never_small() -> None:
    case = make_case(PAIRS, **{"dpo/loss": {("jax", 1): math.nan}})
    found = margins(case)["dpo"]
    assert found["jax"].largest == math.inf
    assert (found["jax"].worst, found["torch"].largest) == ("dpo/loss", 0)
    without = dataclasses.replace(case, steps={**case.steps, "torch": None})
    assert list(margins(without)["dpo"]) == ["jax"]
    assert b"at most inf" in render_margins(case)


@pytest.mark.parametrize("largest", [0.0, 0.3, 1.0, 40.0, 1e12, math.nan])
def test_margins_have_a_limit_a_floor_and_room_for_their_key(largest: float) -> None:
    found = margins(make_case(PAIRS, **{"dpo/loss": {("jax", 1): largest}}))["dpo"]
    axes = make_axes()
    assert draw_margins(axes, "dpo", found) is axes
    axes.figure.draw_without_rendering()
    limit, jax, torch = axes.lines
    assert set(limit.get_ydata()) == {1}
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert low < FLOOR == torch.get_ydata().min()
    key = axes.get_legend().get_window_extent()
    if math.isfinite(largest):
        top = axes.transData.transform((0, max(1.0, jax.get_ydata().max())))[1]
        assert top <= key.y0
    assert jax.get_ydata().max() <= high


# --- clipping ---------------------------------------------------------------------------------


RATIOS = np.array([0.5, 0.8, 1.0, 1.5] * 6).reshape(3, 2, 4)
SIGNS = np.array([2.0, -4.0, 0.0, -1.0] * 6).reshape(3, 2, 4)


def test_samples_outside_the_interval_are_counted_by_sign() -> None:
    drawn = clipped(
        make_case(BANDIT, **{"ppo/ratios": {None: RATIOS}, "ppo/advantages": {None: SIGNS}})
    )
    assert drawn.outside(1) == (6, 6, 0)  # 0.5 < 0.75
    assert drawn.outside(-1) == (12, 0, 6)  # 1.5 > 1.25; A = 0 counts for neither
    assert drawn.advantages.tolist()[:2] == [0.5, -1.0]
    with pytest.raises(ValueError, match="pairs: got no ppo"):
        clipped(make_case(PAIRS))


def test_the_surrogate_is_clipped_on_one_side_of_each_sign() -> None:
    drawn = Clipped("a", "jax", 0.25, RATIOS.ravel(), SIGNS.ravel() / 4)
    axes = make_axes()
    assert draw_surrogate(axes, drawn) is axes
    curves = {line.get_label(): line for line in axes.lines}
    for name, sign in (("A > 0", 1), ("A < 0", -1)):
        x, y = (np.asarray(part) for part in curves[name].get_data())
        np.testing.assert_allclose(
            y, np.minimum(sign * x, sign * np.clip(x, 0.75, 1.25)), rtol=1e-15
        )
    assert curves["A > 0"].get_ydata()[-1] == 1.25
    assert curves["A < 0"].get_ydata()[0] == -0.75
    x, y = curves["samples, A < 0"].get_data()
    # min(ρA, clip(ρ)A): for A < 0 the larger ratio is not clipped
    assert sorted(zip(x, y, strict=True)) == [(0.8, -0.8), (1.5, -0.375)]


@pytest.mark.parametrize("reach", [0.0, 0.1, 3.0, 1e6])
def test_many_samples_stay_in_the_picture_and_are_all_counted(reach: float) -> None:
    random = np.random.default_rng(0)
    ratios = np.exp(np.clip(random.normal(size=20_000) * reach, -80, 80))
    drawn = Clipped("a", "jax", 0.2, ratios, random.choice([-1.0, 1], 20_000))
    axes = make_axes()
    assert draw_counts(axes, drawn) is axes
    counted = sum(patch.get_data().values.round() for patch in axes.patches[1:]).sum()
    assert counted >= 20_000
    low, high = axes.get_xlim()
    assert 0 <= low <= 0.6
    assert high <= 3
    axes = make_axes()
    draw_surrogate(axes, drawn)
    for line in axes.lines:
        if "samples" in str(line.get_label()):
            assert len(line.get_xdata()) <= 500
            assert low <= min(line.get_xdata()) <= max(line.get_xdata()) <= high


# --- the fault matrix -------------------------------------------------------------------------


def make_outcome(name: str, framework: str, *layers: str, **facts: Any) -> Outcome:
    objective = find(facts.pop("objective", "ppo"))
    fault = Fault(
        name=name,
        sentence="s",
        equation="e",
        source="s",
        first="" if "equivalent" in facts else "ppo/loss",
        **facts,
    )
    zero = Entry(
        index=(0,), left=1, right=0, oracle=0, difference=1, allowed=0.5, ratio=2.0, ulps=9
    )
    first = Divergence(
        quantity="ppo/loss", mode="points", grid="g", left="a", right="oracle", at={}, entry=zero
    )
    report = LessonReport(
        lesson="catalogue",
        verdict="divergent" if layers else "match",
        dtype="float32",
        problem_digest="0",
        first_divergence=first if layers else None,
        blamed=[framework] if layers else [],
    )
    seen = tuple(layer for layer in LAYERS if layer in layers)
    return Outcome(Known(objective, fault), framework, report, seen)


OUTCOMES = [
    make_outcome("clip-lost", "jax", "points", "step"),
    make_outcome("clip-lost", "torch", "points"),
    make_outcome("an-extremely-long-name-of-a-fault-that-nobody-would-choose", "torch"),
    make_outcome("dpo-free", "torch", *LAYERS, objective="dpo"),
    make_outcome("rewritten", "jax", equivalent=True),
]


def test_matrix_marks_who_saw_what() -> None:
    axes = make_axes(5.96, 2.0)
    assert draw_faults(axes, OUTCOMES) is axes
    marks = {line.get_label(): len(line.get_xdata()) for line in axes.lines}
    assert marks == {"jax": 2, "torch": 1 + len(LAYERS), "seen by nobody": 4 * 5 - 3}
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text in ("yes", "NO")] == ["yes", "NO", "yes", "yes"]
    assert texts.index("dpo-free") < texts.index("clip-lost") < texts.index("rewritten")
    axes.figure.draw_without_rendering()
    names = [text for text in axes.texts if text.get_position()[0] == 0]
    left = min(min(line.get_xdata()) for line in axes.lines)
    for text in names:
        assert text.get_window_extent().x1 < axes.transData.transform((left, 0))[0] - 4


def test_matrix_does_not_depend_on_who_finished_first() -> None:
    assert render_faults(OUTCOMES) == render_faults(OUTCOMES[::-1])
    with pytest.raises(ValueError, match="got none"):
        render_faults([])


# --- all of them ------------------------------------------------------------------------------


def make_drawings() -> dict[str, bytes]:
    drawings = {"faults": render_faults(OUTCOMES)}
    many = [make_outcome(f"fault-{n}", "jax", "step") for n in range(40)]
    drawings["faults-many"] = render_faults(many)
    for problem in (BANDIT, PAIRS, msgspec.structs.replace(SCORES, name="a" * 90)):
        case = make_case(problem)
        drawings[f"{problem.name}-agreement"] = render_agreement(case)
        drawings[f"{problem.name}-margins"] = render_margins(case)
    values = {"ppo/ratios": {None: RATIOS}, "ppo/advantages": {None: SIGNS}}
    drawings["bandit-clipping"] = render_clipping(make_case(BANDIT, **values))
    return drawings


@pytest.fixture(scope="module")
def drawings() -> dict[str, bytes]:
    return make_drawings()


def test_same_case_same_bytes(drawings: dict[str, bytes]) -> None:
    case = make_case(PAIRS)
    assert render_agreement(case) == drawings["pairs-agreement"]
    assert render_margins(case) == drawings["pairs-margins"]
    assert render_margins(make_case(PAIRS), "png").startswith(b"\x89PNG")


def test_every_figure_is_text_within_the_picture_and_does_not_overlap(
    drawings: dict[str, bytes],
) -> None:
    for name, svg in drawings.items():
        root = ElementTree.fromstring(svg)
        space = "{http://www.w3.org/2000/svg}"
        title, description = list(root)[:2]
        assert (title.tag, description.tag) == (f"{space}title", f"{space}desc")
        assert title.text
        assert description.text
        wide, high = (float(side) for side in (root.get("viewBox") or "").split()[2:])
        boxes = []
        for text in root.iter(f"{space}text"):
            box = extent(text)
            assert box[0] >= 0, (name, text.text)
            assert box[2] <= wide, (name, text.text)
            assert box[1] >= 0, (name, text.text)
            assert box[3] <= high, (name, text.text)
            boxes.append((box, text.text))
        by_height = sorted(boxes, key=lambda entry: entry[0][3])
        for (one, left), (two, right) in pairwise(by_height):
            over = min(one[2], two[2]) - max(one[0], two[0])
            assert over <= 0 or two[1] >= one[3] - 2.5, (name, left, right)


@pytest.fixture
def finished() -> Any:
    """A run of three problems: one matched, one matched with a NaN, one did not match."""
    nan = {"dpo/final_margins": {None: np.full(40, math.nan)}}
    cases = [make_case(BANDIT), make_case(PAIRS, **nan), make_case(SCORES)]
    verdicts = ("match", "match", "divergent")
    lessons = [SimpleNamespace(verdict=verdict) for verdict in verdicts]
    return SimpleNamespace(cases=cases, report=SimpleNamespace(lessons=lessons, digest="0" * 64))


def test_a_number_that_cannot_be_drawn_costs_the_figure_and_not_the_run(
    finished: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _draw(finished, tmp_path, everything=False, png=True)
    names = ("bandit-mechanism", "bandit")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "bandit.json",
        *(f"{name}.{image}" for name in names for image in ("svg", "png")),
    }
    label = "after the last update"
    assert capsys.readouterr().err == (
        f"no figure of pairs: panel 1, {label}[0]: got nan; only finite numbers are drawn\n"
    )
    assert redraw(tmp_path / "figures" / "bandit.json") is None


def test_all_figures_have_names_that_say_what_they_show() -> None:
    case = make_case(BANDIT)
    document = record(
        BANDIT, case.traces, verdict="match", report_digest="0" * 64, generated_at=EPOCH
    )
    names = [name for name, _ in drawings_of(document, case, everything=True)]
    kinds = ("", "-mechanism", "-agreement", "-margins", "-clipping")
    assert names == [f"bandit{kind}.svg" for kind in kinds]


def extent(text: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a text in points."""
    from parity.figures.text import width

    style = dict(part.split(": ", 1) for part in (text.get("style") or "").split("; "))
    weight, size = ("normal", style.get("font-size", ""))
    if "font" in style:
        found = re.match(r"(?:\w+ )*?(bold|700)? ?([\d.]+px)", style["font"])
        assert found, style
        weight, size = found[1] or "normal", found[2]
    weight = style.get("font-weight", weight)
    points = float(size[:-2])
    length = width(text.text or "", points, bold=weight in ("bold", "700"))
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}[style.get("text-anchor", "start")] * length
    x, y = float(text.get("x") or 0), float(text.get("y") or 0)
    return x - before, y - 0.75 * points, x - before + length, y + 0.2 * points
