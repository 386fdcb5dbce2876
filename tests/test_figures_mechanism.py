import json
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from parity.figures.diagram import Diagram, Edge, GraphPanel, Node, TablePanel, misfits
from parity.figures.lessons import diagram
from parity.figures.mechanism import _figure, border, draw_graph, render_mechanism
from parity.figures.style import TONES
from parity.figures.table import draw_table
from parity.figures.text import width, wrap
from parity.objectives.dpo import DPO
from parity.objectives.ppo import PPO
from parity.objectives.reinforce import REINFORCE
from parity.objectives.reward import Reward
from parity.problem import Problem, lessons, load_problem

TOWARDS = Node(id="b", x=9.0, y=1.0, label="b", tone="data", w=1.0, h=1.0)
REWARD = Problem(
    name="reward",
    reward=Reward(features=((1.0,), (0.0,)), preferences=((0, 1),), updates=4, rate=0.1),
)


def make_axes(wide: float = 5.96, high: float = 4.2) -> Any:
    figure = Figure(figsize=(wide, high), dpi=72)
    FigureCanvasAgg(figure)
    return figure.add_axes((0, 0, 1, 1))


EVERY = [
    pytest.param(diagram(problem), id=problem.name)
    for problem in (*(load_problem(name) for name in lessons()), REWARD)
]


# --- contents ---------------------------------------------------------------------------------


def test_structure_is_that_of_the_recorded_documents() -> None:
    """The panels of shared/seeds: kinds, counts, places, tones and edges; words are our own."""
    table = diagram(load_problem("posttraining-04"))
    assert isinstance(table.panel, TablePanel)
    assert (table.height, len(table.panel.headers), len(table.panel.rows)) == (5.2, 3, 5)
    graph = diagram(load_problem("posttraining-05"))
    assert isinstance(graph.panel, GraphPanel)
    assert (graph.height, graph.panel.width) == (5.7, 10.0)
    assert graph.panel.height == pytest.approx(7.3)
    assert [(n.id, n.x, n.y, n.tone, n.w, n.h) for n in graph.panel.nodes] == [
        ("pairs", 5.0, 0.8, "data", 5.0, 0.85),
        ("policy", 2.5, 2.6, "state", 4.4, 1.1),
        ("ref", 7.5, 2.6, "fixed", 4.4, 1.1),
        ("margin", 5.0, 4.5, "data", 8.0, 0.85),
        ("loss", 5.0, 6.3, "result", 6.0, 0.85),
    ]
    assert [(edge.source, edge.target) for edge in graph.panel.edges] == [
        *(("pairs", "policy"), ("pairs", "ref"), ("policy", "margin")),
        *(("ref", "margin"), ("margin", "loss")),
    ]


def test_lifetimes_are_counted_from_the_problem() -> None:
    panel = diagram(load_problem("posttraining-04")).panel
    assert isinstance(panel, TablePanel)
    changes = {row[0]: row[-1] for row in panel.rows}
    assert changes["Policy"] == "every update (120 in all)"  # 40 rollouts of 3 epochs
    assert changes["Old log-probs"] == "every rollout (40 in all)"
    assert changes["Reference policy"].startswith("never")


def test_a_problem_of_several_objectives_shows_the_first() -> None:
    ppo = PPO(logits=(0.0, 0.0), rollouts=1, samples=1, epochs=1, rate=0.1, beta=0.2, clip=0.2)
    dpo = DPO(logits=(0.0, 0.0), preferences=((0, 1),), updates=1, rate=0.1, beta=0.2)
    reinforce = REINFORCE(
        logits=(0.0, 0.0), scores=(1.0, 0.0), rollouts=1, samples=1, rate=0.1, beta=0.2
    )
    alone = [
        diagram(Problem(name="a", reward=REWARD.reward, ppo=ppo)),
        diagram(Problem(name="a", reinforce=reinforce)),
        diagram(Problem(name="a", dpo=dpo)),
        diagram(REWARD),
    ]
    assert len({each.title for each in alone}) == 4
    everything = Problem(name="a", reward=REWARD.reward, ppo=ppo, dpo=dpo, reinforce=reinforce)
    assert diagram(everything) == alone[0]
    assert diagram(Problem(name="a", dpo=dpo, reinforce=reinforce)) == alone[1]
    with pytest.raises(ValueError, match="got no objective"):
        diagram(Problem(name="a"))


@pytest.mark.parametrize("ours", EVERY)
def test_our_diagrams_are_whole_and_survive_a_file(ours: Diagram) -> None:
    assert list(misfits(ours)) == []
    encoded = msgspec.json.encode(ours)
    assert msgspec.json.decode(encoded, type=Diagram) == ours
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=Diagram)) == encoded
    raw = json.loads(encoded)
    assert list(raw) == ["title", "prediction", "reading", "alt", "scope", "height", "panel"]
    assert ours.prediction.endswith("?")


def test_a_ragged_table_is_a_misfit() -> None:
    ours = diagram(load_problem("posttraining-04"))
    ragged = msgspec.structs.replace(ours, panel=TablePanel(headers=("a", "b"), rows=(("c",),)))
    assert list(misfits(ragged)) == [("panel.rows[0]", 1, "2 cells, as headers")]


# --- words in boxes ---------------------------------------------------------------------------


def test_widths_are_those_of_the_font_whatever_was_measured_before() -> None:
    from matplotlib.textpath import TextPath

    text = "Which of them is replaced when new actions are drawn?"
    for size in (8.5, 30):
        path = TextPath((0, 0), text, size=size).get_extents()
        assert width(text, size) == pytest.approx(path.x1, rel=0.01)
    assert width(text, 8.5, bold=True) > width(text, 8.5)


@pytest.mark.parametrize("room", [1.0, 30.0, 100.0, 1000.0])
def test_wrapped_lines_fit_and_lose_nothing(room: float) -> None:
    text = "log π(c) − log π(r)\nan unbreakable" + "w" * 40 + " end"
    lines = wrap(text, room, 8.5)
    assert all(width(line, 8.5) <= room or len(line) == 1 for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    if room == 1000.0:
        assert lines == text.split("\n")


def boxes_of(axes: Any) -> list[Any]:
    axes.figure.draw_without_rendering()
    return [text.get_window_extent() for text in axes.texts]


def assert_apart(boxes: list[Any], area: Any) -> None:
    for box in boxes:
        assert area.x0 <= box.x0
        assert box.x1 <= area.x1
        assert area.y0 <= box.y0
        assert box.y1 <= area.y1
    for number, left in enumerate(boxes):
        for right in boxes[:number]:
            apart = left.x0 >= right.x1 or right.x0 >= left.x1
            # lines of one text are 1.3 sizes apart; their boxes may touch
            assert apart or left.y0 >= right.y1 - 2 or right.y0 >= left.y1 - 2


LONG = "a reading so long that it has to wrap and wrap " * 3


@pytest.mark.parametrize(
    "panel",
    [
        diagram(load_problem("posttraining-04")).panel,
        TablePanel(headers=("a", "b", LONG), rows=((LONG, "x", "y"), ("w" * 90, LONG, "z"))),
        TablePanel(headers=("one",), rows=(("1",),)),
        TablePanel(headers=("w" * 60, "w" * 60), rows=(("w" * 60, "w" * 60),)),
    ],
)
def test_cells_of_a_table_keep_apart(panel: TablePanel) -> None:
    axes = make_axes(high=20)
    assert draw_table(axes, panel) is axes
    assert_apart(boxes_of(axes), axes.bbox)


@pytest.mark.parametrize("label", [None, "x", LONG, "w" * 200, "a\nb\nc\nd\ne\nf"])
@pytest.mark.parametrize("name", ["posttraining-05", "policy-gradient-kl-control"])
def test_labels_stay_in_their_boxes_and_arrows_end_at_borders(name: str, label: str | None) -> None:
    panel = diagram(load_problem(name)).panel
    assert isinstance(panel, GraphPanel)
    if label:
        nodes = tuple(msgspec.structs.replace(node, label=label) for node in panel.nodes)
        panel = msgspec.structs.replace(panel, nodes=nodes)
    axes = make_axes()
    assert draw_graph(axes, panel) is axes
    assert_apart(boxes_of(axes), axes.bbox)
    scale = (axes.bbox.width / panel.width, (axes.bbox.height - 26) / panel.height)
    height = axes.bbox.height
    for text, box in zip(axes.texts, boxes_of(axes), strict=True):
        node = next(
            (
                n
                for n in panel.nodes
                if abs(n.x * scale[0] - text.get_position()[0]) < 1e-6
                and abs(n.y * scale[1] - text.get_position()[1]) < n.h * scale[1] / 2
            ),
            None,
        )
        if node:
            assert box.x0 >= (node.x - node.w / 2) * scale[0]
            assert box.x1 <= (node.x + node.w / 2) * scale[0]
            assert height - box.y1 >= (node.y - node.h / 2) * scale[1] - 1
            assert height - box.y0 <= (node.y + node.h / 2) * scale[1] + 1
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == len(panel.edges)


@pytest.mark.parametrize(
    ("node", "end"),
    [
        (Node(id="a", x=1.0, y=1.0, label="a", tone="data", w=2.0, h=1.0), (2.0, 1.0)),  # beside
        (Node(id="a", x=9.0, y=5.0, label="a", tone="data", w=2.0, h=1.0), (9.0, 4.5)),  # below
        (Node(id="a", x=5.0, y=5.0, label="a", tone="data", w=2.0, h=2.0), (6.0, 4.0)),  # corner
        (Node(id="a", x=1.0, y=3.0, label="a", tone="data", w=2.0, h=4.0), (2.0, 2.75)),
    ],
)
def test_a_line_leaves_a_box_at_its_border(node: Node, end: tuple[float, float]) -> None:
    assert border(node, TOWARDS) == pytest.approx(end)


def test_no_arrow_of_ours_crosses_a_box() -> None:
    for problem in (*(load_problem(name) for name in lessons()), REWARD):
        panel = diagram(problem).panel
        if isinstance(panel, GraphPanel):
            places = {node.id: node for node in panel.nodes}
            for edge in panel.edges:
                assert not [*crossed(edge, places)], (problem.name, edge)


def crossed(edge: Edge, places: dict[str, Node]) -> Iterator[str]:
    source, target = places[edge.source], places[edge.target]
    for name, node in places.items():
        if name not in (edge.source, edge.target):
            for part in range(101):
                x = source.x + (target.x - source.x) * part / 100
                y = source.y + (target.y - source.y) * part / 100
                if abs(x - node.x) <= node.w / 2 and abs(y - node.y) <= node.h / 2:
                    yield name
                    break


def test_tones_differ_without_colour() -> None:
    outlines = {(str(t["line"]), t["weight"], t["inner"]) for t in TONES.values()}
    assert len(outlines) == len(TONES) == 4


@pytest.mark.parametrize("ours", EVERY)
@pytest.mark.parametrize("longer", [1, 6])
def test_words_around_the_picture_never_overlap(ours: Diagram, longer: int) -> None:
    words = {
        field: " ".join([getattr(ours, field)] * longer)
        for field in ("title", "prediction", "reading", "scope")
    }
    import matplotlib

    from parity.figures.style import RC

    with matplotlib.rc_context(RC):
        figure = _figure("lesson " * longer * 3, msgspec.structs.replace(ours, **words))
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in figure.texts]
        assert_apart(boxes, figure.bbox)
        ordered = sorted(boxes, key=lambda box: -box.y1)
        assert all(above.y0 > below.y0 for above, below in pairwise(ordered))
        axes = figure.axes[0].get_window_extent()
        for box in boxes:
            assert box.y0 >= axes.y1 - 1 or box.y1 <= axes.y0 + 1
    if longer == 1:
        assert figure.get_figheight() == ours.height


def test_the_description_says_what_the_picture_shows() -> None:
    record: Any = SimpleNamespace(lesson_id="<a>", diagram=diagram(load_problem("posttraining-05")))
    root = ElementTree.fromstring(render_mechanism(record))
    title, description = list(root)[:2]
    ours = diagram(load_problem("posttraining-05"))
    assert title.text == f"<a>: {ours.title}"
    assert ours.alt in (description.text or "")
    assert "Arrow from Pair: chosen c, rejected r to Policy in training" in (description.text or "")
    words = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Reference, frozen", "Loss: mean softplus(−β m)", "never changes", "<a>"} <= words
