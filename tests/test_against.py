"""`parity check A --against B`: two functions of the user's, any objective, any framework."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from parity.against import Pair, compare_functions
from parity.deriving import prepared
from parity.errors import BackendError, InputError
from parity.parting import parted
from parity.report.words import pair_failure
from parity.testing import assert_same

PATIENCE = 600.0  # seconds for what takes ten, on a busy machine

TORCH = """
import torch

def grpo(logps, old_logps, advantages, mask, clip):
    ratios = torch.exp(logps - old_logps.detach())
    a = advantages.detach()[:, None]
    terms = -torch.minimum(ratios * a, torch.clamp(ratios, 1 - clip, 1 + clip) * a)
    return ((terms * mask).sum(1) / mask.sum(1)).mean()
"""

# As its users wrote it; the planted errors are in the mask, and in what is frozen.
JAX = """
import jax
import jax.numpy as jnp

def _terms(logps, old, advantages, clip):
    ratios = jnp.exp(logps - jax.lax.stop_gradient(old))
    a = jax.lax.stop_gradient(advantages)[:, None]
    return jnp.maximum(-a * ratios, -a * jnp.clip(ratios, 1 - clip, 1 + clip))

def grpo(logps, old_logps, advantages, mask, clip):
    terms = _terms(logps, old_logps, advantages, clip)
    return jnp.mean(jnp.sum(jnp.where(mask > 0, terms, 0), axis=1) / jnp.sum(mask, axis=1))

def padded(logps, old_logps, advantages, mask, clip):
    terms = _terms(logps, old_logps, advantages, clip)
    return jnp.mean(jnp.sum(terms * mask, axis=1) / mask.shape[1])

def leaking(logps, old_logps, advantages, mask, clip):
    return grpo(logps, jax.lax.stop_gradient(old_logps), advantages, mask, clip) + 0 * jnp.sum(
        old_logps
    ) + jnp.sum(advantages - jax.lax.stop_gradient(advantages))
"""

NUMPY = """
import os
import numpy as np

def mean(x, weights):
    return np.sum(x * weights) / np.sum(weights)

def average(x, weights):
    return np.average(x, weights=weights)

def single(x, weights):
    return mean(x.astype(np.float32), weights.astype(np.float32)).astype(x.dtype)

def unweighted(x, weights):
    return np.mean(x)

def other_names(values, weights):
    return mean(values, weights)

def dies(x, weights):
    os._exit(3)

def total(x):
    return np.sum(x)

calls = []

def counts(x, weights):
    calls.append(x)
    return mean(x, weights) * (1 + len(calls) % 2)

def both(x, weights):
    return mean(x, weights), x.sum()

def scaled_in_single(x, weights):
    return mean(x, weights) * (1.5 if x.dtype == np.float32 else 1.0)

def raises(x, weights):
    raise ValueError("not today")

def column(x, weights):
    return mean(x, weights)[None]

def points():
    random = np.random.default_rng(1)
    for rows in (3, 8):
        yield {"x": random.normal(size=rows), "weights": np.ones(rows)}
    yield {"x": random.normal(size=5), "weights": np.array([1.0, 1.0, 0.0, 1.0, 1.0])}

def no_points():
    return []
"""


TORCH_PLAIN = """
import torch

def mean(x, y):
    return (x * y).tanh().mean(0).sum()

def no_gradient(x, y):
    with torch.no_grad():
        return mean(x, y)

def nll(logits, actions):
    return -torch.log_softmax(logits, -1)[actions].mean()

def total(x):
    return x.sum()
"""

JAX_PLAIN = """
import jax
import jax.numpy as jnp

def mean(x, y):
    return jnp.tanh(x * y).mean(0).sum()

def brain_in_single(x, y):
    return mean(x.astype(jnp.bfloat16).astype(x.dtype) if x.dtype == jnp.float32 else x, y)

def nll(logits, actions):
    return jnp.mean(jax.nn.logsumexp(logits) - logits[actions])

def detached(logits, actions):
    return nll(jax.lax.stop_gradient(logits), actions) + 0 * jnp.sum(logits)
"""


def silent(_who: str, _stage: str) -> None:
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("against")
    sources = {"torch": TORCH, "jax": JAX, "numpy": NUMPY}
    sources |= {"plain_torch": TORCH_PLAIN, "plain_jax": JAX_PLAIN}
    for name, source in sources.items():
        (folder / f"mine_{name}.py").write_text(textwrap.dedent(source))
    random = np.random.default_rng(0)
    mask = np.ones((4, 6))
    mask[1, 3:] = mask[3, 5:] = 0
    logps = -random.exponential(size=(4, 6))
    point = {
        "logps": logps,
        "old_logps": logps + 0.3 * random.normal(size=(4, 6)),
        "advantages": random.normal(size=4),
        "mask": mask,
        "clip": np.array(0.2),
    }
    np.savez(folder / "points.npz", allow_pickle=False, **point)
    full = {**point, "mask": np.ones((4, 6))}
    named = {
        f"{label}/{n}": v for label, p in (("full", full), ("ragged", point)) for n, v in p.items()
    }
    save_file(named, folder / "points.safetensors")
    products = {"x": random.normal(size=(6, 3)), "y": random.normal(size=(6, 3))}
    np.savez(folder / "products.npz", allow_pickle=False, **products)
    zero = {"logits": np.zeros(4), "actions": random.integers(4, size=1000)}
    np.savez(folder / "zero.npz", allow_pickle=False, **zero)
    few = zero | {"actions": np.array([0, 2, 1])}
    np.savez(folder / "few.npz", allow_pickle=False, **few)
    tenths = {"normal/x": random.normal(size=1000), "tenth/x": np.full(1000, 0.1)}
    np.savez(folder / "thousand.npz", allow_pickle=False, **tenths)
    (folder / "no_archive.npz").write_bytes(b"what is this")
    return folder


@pytest.fixture
def pair(folder: Path) -> Callable[..., Pair]:
    def of(left: str, right: str, points: str, **options: object) -> Pair:
        place = f"{folder}/{points}"
        return Pair(f"{folder}/mine_{left}", f"{folder}/mine_{right}", place, **options)

    return of


def test_a_masked_loss_and_its_port_match(folder: Path) -> None:
    with np.load(folder / "points.npz", allow_pickle=False) as point:
        report = assert_same(
            f"{folder}/mine_torch.py:grpo",
            f"{folder}/mine_jax.py:grpo",
            points=dict(point),
            frozen=("old_logps", "advantages"),
            timeout=PATIENCE,
        )
    assert report.frameworks == ["torch", "jax"]
    assert report.differentiated == ["advantages", "clip", "logps", "old_logps"]
    assert report.notes == ["not differentiated, it is a mask: mask (--gradients mask)"]
    assert {c.right for c in report.comparisons} == {"B", "0"}


def test_a_planted_mask_error_is_found(folder: Path) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_same(
            f"{folder}/mine_torch.py:grpo",
            f"{folder}/mine_jax.py:padded",
            points=f"{folder}/points.safetensors",
            timeout=PATIENCE,
        )
    lines = str(failed.value).splitlines()
    # Where nothing is masked they are the same; row 1 is the first that is padded.
    assert lines[0] == "divergent: parts at 1 of 2 points, in value, gradient/clip, gradient/logps"
    assert lines[1].startswith("value at ragged (float64): A ")
    assert "ragged: value, gradient/clip, gradient/logps; 1 of 4 rows suffice: 1" in lines


def test_a_gradient_to_what_is_frozen_is_found(pair: Callable[..., Pair]) -> None:
    frozen = ("advantages",)
    report = compare_functions(
        pair("torch.py:grpo", "jax.py:leaking", "points.npz", frozen=frozen), PATIENCE, silent
    )
    assert report.verdict == "divergent"
    assert report.broken[0].quantities == ["gradient/advantages"]
    guilty = [c.left for c in report.comparisons if c.right == "0" and c.verdict == "divergent"]
    assert guilty == ["B"]


@pytest.mark.parametrize(
    ("right", "verdict"),
    [("average", "match"), ("single", "noisy"), ("unweighted", "divergent")],
)
def test_numpy_functions_at_points_that_a_function_makes(
    right: str, verdict: str, pair: Callable[..., Pair]
) -> None:
    report = compare_functions(
        pair("numpy.py:mean", f"numpy.py:{right}", "mine_numpy.py:points"), PATIENCE, silent
    )
    assert report.verdict == verdict, pair_failure(report)
    assert report.points == 3
    assert [b.point for b in report.broken] == (["point 2"] if verdict == "divergent" else [])
    assert any("no gradients" in note for note in report.notes)


@pytest.mark.parametrize(
    ("left", "right", "points"),
    [
        ("numpy.py:mean", "numpy.py:scaled_in_single", "mine_numpy.py:points"),
        ("plain_jax.py:mean", "plain_jax.py:brain_in_single", "products.npz"),
    ],
)
def test_what_is_wrong_in_float32_alone_is_no_match(
    left: str, right: str, points: str, pair: Callable[..., Pair]
) -> None:
    asked = pair(left, right, points)
    report = compare_functions(asked, PATIENCE, silent)
    assert report.verdict == "noisy", pair_failure(report)
    assert report.sentence.startswith("the float32 run of B lies further from its own float64 run")


@pytest.mark.parametrize(
    ("left", "right", "points"),
    [
        ("plain_torch.py:total", "numpy.py:total", "thousand.npz"),
        # A thousand equal terms, in the loss and backwards, all round alike.
        ("plain_torch.py:nll", "plain_jax.py:nll", "zero.npz"),
    ],
)
def test_honest_pairs_that_round_differently_match(
    left: str, right: str, points: str, pair: Callable[..., Pair]
) -> None:
    report = compare_functions(pair(left, right, points), PATIENCE, silent)
    assert report.verdict == "match", pair_failure(report)


def test_logits_of_zero_are_no_mask(pair: Callable[..., Pair]) -> None:
    asked = pair("plain_jax.py:nll", "plain_jax.py:detached", "few.npz")
    report = compare_functions(asked, PATIENCE, silent)
    assert report.differentiated == ["logits"]
    assert [b.quantities for b in report.broken] == [["gradient/logits"]]


def test_of_a_tuple_the_first_is_compared(pair: Callable[..., Pair]) -> None:
    asked = pair("numpy.py:mean", "numpy.py:both", "mine_numpy.py:points")
    report = compare_functions(asked, PATIENCE, silent)
    assert report.verdict == "match"
    assert f"{asked.right} returns 2 values: the first is compared" in report.notes


def test_a_value_without_a_gradient_is_told(pair: Callable[..., Pair]) -> None:
    without = "plain_torch.py:no_gradient"
    asked = pair("plain_jax.py:mean", without, "products.npz")
    report = compare_functions(asked, PATIENCE, silent)
    assert report.verdict == "divergent"
    assert report.fault.startswith(f"{asked.right} returned a value that carries no gradient; ")


def test_a_function_that_changes_its_mind_is_told(pair: Callable[..., Pair]) -> None:
    asked = pair("numpy.py:mean", "numpy.py:counts", "mine_numpy.py:points")
    report = compare_functions(asked, PATIENCE, silent)
    assert report.verdict == "divergent"
    assert report.sentence.endswith("gives another value when called again (point 0) in float64")


def test_arguments_of_other_names_are_mapped(pair: Callable[..., Pair]) -> None:
    asked = pair("numpy.py:mean", "numpy.py:other_names", "mine_numpy.py:points")
    with pytest.raises(InputError, match="'values' is not among the points"):
        compare_functions(asked, PATIENCE, silent)
    mapped = asked._replace(mapping={"values": "x"})
    assert compare_functions(mapped, PATIENCE, silent).verdict == "match"


def test_misbehaviour_is_told(pair: Callable[..., Pair]) -> None:
    points = "mine_numpy.py:points"
    raised = compare_functions(pair("numpy.py:mean", "numpy.py:raises", points), PATIENCE, silent)
    assert raised.verdict == "divergent"
    assert "raised ValueError: not today" in raised.sentence
    shaped = compare_functions(pair("numpy.py:mean", "numpy.py:column", points), PATIENCE, silent)
    assert shaped.sentence == "A returns shape [], B [1] (point 0)"
    with pytest.raises(BackendError, match=r"mine_numpy.py:dies \(float32\): crashed with exit"):
        compare_functions(pair("numpy.py:mean", "numpy.py:dies", points), PATIENCE, silent)


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        ("nowhere.npz", {}, "cannot be read: No such file"),
        ("mine_numpy.py", {}, "expected package.module:function"),
        ("mine_numpy.py:no_points", {}, "made no points"),
        ("mine_numpy.py:missing", {}, "has no missing"),
        ("points.npz", {"gradients": ("magic",)}, "--gradients: got 'magic'; expected one of"),
        ("points.npz", {"frozen": ("magic",)}, "--frozen: got 'magic'; expected one of"),
        ("points.npz", {}, "argument 'x' is not among the points"),
    ],
)
def test_unusable_points_are_refused(
    points: str, options: dict[str, tuple[str, ...]], message: str, pair: Callable[..., Pair]
) -> None:
    with pytest.raises(InputError) as refused:
        compare_functions(
            pair("numpy.py:mean", "numpy.py:mean", points, **options), PATIENCE, silent
        )
    assert message in str(refused.value)


def test_what_is_no_archive_is_not_taken_for_a_pickle(pair: Callable[..., Pair]) -> None:
    with pytest.raises(InputError, match=r"not a readable \.npz file") as refused:
        compare_functions(
            pair("numpy.py:mean", "numpy.py:mean", "no_archive.npz"), PATIENCE, silent
        )
    assert "pickle" not in str(refused.value)


def test_equal_infinities_do_not_part() -> None:
    left, right = ({"value": np.array([-np.inf, 1.0, last])} for last in (2.0, 2.1))
    assert not parted(left, left, ["value"])
    assert parted(left, right, ["value"])
    assert parted(left, {"value": np.array([np.inf, 1.0, 2.0])}, ["value"])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0.0, np.nan], "x[1]: got nan; expected a number within float32"),
        (np.nan, "x: got nan; expected a number within float32"),
        ([[1e39]], "x[0, 0]: got 1e+39; expected a number within float32"),
        (["a"], "x: got <U1; expected real numbers, integers or booleans"),
        ([1j], "x: got complex128; expected real numbers, integers or booleans"),
    ],
)
def test_inputs_that_judge_nothing_are_refused(value: object, message: str) -> None:
    with pytest.raises(InputError) as refused:
        prepared("x", value)
    assert str(refused.value) == message


def test_an_infinite_mask_is_an_input() -> None:
    assert prepared("x", [0.0, -np.inf]).tolist() == [0.0, -np.inf]
