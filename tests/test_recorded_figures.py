"""The committed figures are what their documents say, and their documents what was recorded."""

import pytest

from parity.figures import load, recorded, redraw
from parity.problem import lessons


def test_every_lesson_has_a_recorded_figure():
    assert recorded().keys() == lessons().keys()


@pytest.mark.parametrize("lesson", sorted(recorded()))
def test_it_redraws_byte_for_byte(lesson):
    assert redraw(recorded()[lesson]) is None


@pytest.mark.parametrize("lesson", sorted(recorded()))
def test_it_carries_its_verdict(lesson):
    document = load(recorded()[lesson])
    assert document.parity.verdict == "match"
    assert len(document.parity.report_digest) == 64  # SHA-256 in hexadecimal
    assert len(document.parity.panels) == len(document.data.panels)


def test_a_changed_byte_is_seen(tmp_path):
    source = recorded()["posttraining-05"]
    for path in source.parent.glob("posttraining-05*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    svg = tmp_path / "posttraining-05.svg"
    svg.write_bytes(svg.read_bytes().replace(b"</svg>", b" </svg>"))
    assert "posttraining-05.svg" in redraw(tmp_path / source.name)
