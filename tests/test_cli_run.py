"""`parity run` from outside, with the real frameworks: exit code, files, words, report, digests."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers_cli import FIGURES, LESSONS, PPO, Ran, contents, names, parity, recorded, report_in
from parity.problem import load_problem
from parity.samples import Samples
from parity.trace import Trace


def ran_in(folder: Path) -> Ran:
    return Ran(*json.loads((folder / "ran.json").read_text()))


def check_schema(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> None:
    """Checks a document against as much of JSON Schema as ours uses."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        errors = []
        for option in schema["anyOf"]:
            try:
                check_schema(value, option, root)
                return
            except AssertionError as error:
                errors.append(error)
        raise AssertionError(errors)
    if "enum" in schema:
        assert value in schema["enum"]
        return
    kinds: dict[str, tuple[type, ...]] = {
        "object": (dict,),
        "array": (list,),
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "null": (type(None),),
        "boolean": (bool,),
    }
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        assert set(schema.get("required", [])) <= set(value)
        for key, entry in value.items():
            inner = properties.get(key, schema.get("additionalProperties"))
            assert inner is not None, key  # a field that the schema does not know
            check_schema(entry, inner, root)
    if isinstance(value, list):
        for entry in value:
            check_schema(entry, schema.get("items", {}), root)


# One real run of all recorded lessons, in a hostile place.


def test_a_run_of_all_lessons_matches(full: Path) -> None:
    ran, report = ran_in(full), report_in(full / "parity-out")
    assert ran.code == 0, ran.err
    assert report.verdict == "match"
    assert [lesson.lesson for lesson in report.lessons] == LESSONS
    for lesson in report.lessons:
        assert (lesson.verdict, lesson.reason, lesson.blamed) == ("match", "", [])
        assert lesson.first_divergence is None
        assert lesson.problem_digest == load_problem(lesson.lesson).digest
        assert {c.verdict for c in lesson.comparisons} == {"match"}
        assert {(c.left, c.right) for c in lesson.comparisons} == {
            ("jax", "oracle"),
            ("torch", "oracle"),
            ("jax", "torch"),
        }
    for name in ("jax", "torch", "parity", "python", "platform", "numpy", "time"):
        assert report.environment[name]


def test_a_run_leaves_its_files_and_removes_older_ones(full: Path) -> None:
    assert names(full / "parity-out") == {
        "report.json",
        *(f"traces/{lesson}.{twin}.safetensors" for lesson in LESSONS for twin in ("jax", "torch")),
        *(f"figures/{lesson}{kind}" for lesson in LESSONS for kind in FIGURES),
    }
    report = report_in(full / "parity-out")
    for lesson in report.lessons:
        for twin in ("jax", "torch"):
            path = full / "parity-out" / "traces" / f"{lesson.lesson}.{twin}.safetensors"
            trace = Trace.load(path)
            assert (trace.implementation, trace.dtype) == (twin, "float32")
            assert trace.problem_digest == lesson.problem_digest
            assert trace.samples_digest == lesson.samples_digest
        figure = json.loads((full / "parity-out" / "figures" / f"{lesson.lesson}.json").read_text())
        assert report.digest in json.dumps(figure)  # no figure exists without its verdict
        assert figure["generatedAt"].startswith("1970-01-01T00:00:00")  # SOURCE_DATE_EPOCH = 0


def test_a_run_says_what_it_did(full: Path) -> None:
    ran, report = ran_in(full), report_in(full / "parity-out")
    comparisons = [c for lesson in report.lessons for c in lesson.comparisons]
    values = sum(c.compared for c in comparisons)
    tightest = max(comparisons, key=lambda c: float(c.worst.ratio if c.worst else -1))
    assert tightest.worst is not None
    assert ran.closing == (
        f"match: {len({c.quantity for c in comparisons})} quantities, {values:,} values compared; "
        f"tightest margin {tightest.worst.ratio:.2f} of the allowance "
        f"({tightest.quantity}, {tightest.mode}, {tightest.left} against {tightest.right})"
    )
    for lesson in LESSONS:
        assert sum(line.startswith(f"{lesson}  ") for line in ran.out.splitlines()) == 1
    for quantity in {c.quantity for c in comparisons}:
        assert quantity in ran.out
    stages = [line.split(maxsplit=3)[2:] for line in ran.err.splitlines()]
    for backend in ("jax", "torch"):
        mine = [" ".join(stage[1:]) for stage in stages if stage[0] == backend]
        assert mine[0] == "importing"
        assert mine[-1] == "done"
        assert [s for s in mine if s.startswith("training")] == [f"training {n}" for n in LESSONS]


def test_80_ascii_columns_suffice(full: Path) -> None:
    ran = ran_in(full)
    assert ran.out.isascii()
    assert ran.err.isascii()
    assert "\x1b" not in ran.out + ran.err
    *body, files, closing = ran.out.splitlines()  # these two are for machines and do not wrap
    assert files.startswith("parity-out/report.json, figures/: ")
    assert closing.startswith("match: ")
    assert max(map(len, body)) <= 80


def test_the_report_is_as_its_schema_says(
    full: Path, inside: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = inside("schema", "report", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    schema = json.loads(ran.out)
    document = json.loads((full / "parity-out" / "report.json").read_text())
    check_schema(document, schema, schema)
    for broken in (
        document | {"verdict": "fine"},
        document | {"lessons": {}},
        document | {"more": 1},
        {key: value for key, value in document.items() if key != "verdict"},
    ):
        with pytest.raises(AssertionError):
            check_schema(broken, schema, schema)


# A problem without samples, twice: its tape is drawn once.


@pytest.fixture(scope="session")
def drawn(once: Callable[..., Path], twins: str) -> Path:
    def fill(folder: Path) -> None:
        (folder / "small.toml").write_text(PPO)
        for number in (1, 2):
            place = folder / str(number)
            place.mkdir()
            arguments = ("run", "small.toml", "--no-figures", "--format", "json")
            recorded(place, parity(*arguments, cwd=folder, PYTHONPATH=twins))
            shutil.copytree(folder / "parity-out", place / "out", copy_function=shutil.copy2)

    return once("drawn-run", fill)


def test_a_problem_without_samples_draws_them_once_and_keeps_them(drawn: Path) -> None:
    first, second = (ran_in(drawn / number) for number in "12")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "drawing samples of small" in first.err
    assert "drawing" not in second.err
    before, after = (contents(drawn / number / "out") for number in "12")
    assert set(before) == set(after)
    assert before["samples/small.safetensors"] == after["samples/small.safetensors"]
    assert not any(name.startswith("figures/") for name in after)
    tape = Samples.load(drawn / "2" / "out" / "samples" / "small.safetensors")
    assert (tape.problem, tape.seed, tape.sampler) == ("small", 5, "jax")
    assert tape.actions.shape == (3, 8)
    tape.check(load_problem(drawn / "small.toml"), "tape")


def test_two_runs_have_one_digest(drawn: Path) -> None:
    first, second = (report_in(drawn / number / "out") for number in "12")
    assert first.verdict == "match"
    assert first.digest == second.digest
    assert first.environment | {"time": ""} == second.environment | {"time": ""}
    changed = msgspec.structs.replace(first, environment={"jax": "another"})
    assert changed.digest == first.digest
    assert msgspec.structs.replace(first, verdict="noisy").digest != first.digest


def test_json_is_printed_as_it_is_written(drawn: Path) -> None:
    written = (drawn / "2" / "out" / "report.json").read_text()
    assert ran_in(drawn / "2").out == written
