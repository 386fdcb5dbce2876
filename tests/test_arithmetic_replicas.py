"""Replicas: each an honest float32 program; together they show what rounding can do."""

import numpy as np
import pytest

from arithmetic_cases import CASES, Case, draw, value_and_gradients
from parity.arithmetic import kernels, rounded
from parity.arithmetic import operations as op
from parity.arithmetic.bounded import Bounded
from parity.arithmetic.rounded import SMALLEST, UNIT_ROUNDOFF, Luck, Rounded, left_to_right
from parity.arithmetic.tape import Taped, gradients

FLOAT64_ERROR = 1e-14  # of the exact run; float32's is 3e-8
EVERY = np.arange(64)
SCALED = EVERY // 8 % 2 == 1
RANDOM = (EVERY > 11) | (EVERY // 4 == 1)  # the others sum in the data's order, or against it


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_replicas_scatter_around_the_exact_result_and_within_its_bound(case: Case) -> None:
    operands = draw(case, 5, (3,))
    weights = draw(case._replace(shapes=[case.run(*operands).shape], ranges=[(-2.0, 2.0)]), 6)[0]
    value, gradients = value_and_gradients(case, operands, weights)
    luck = Luck()
    rough = [luck.lift(x) * 1.0 for x in operands]  # exact ones would sum alike in all orders
    lucky = value_and_gradients(case, rough, luck.lift(weights) * 1.0)
    bounds = value_and_gradients(case, [Bounded(x) * 1.0 for x in operands], Bounded(weights) * 1.0)
    pairs = zip([value, *gradients], [lucky[0], *lucky[1]], [bounds[0], *bounds[1]], strict=True)
    for plain, replicas, bound in pairs:
        np.testing.assert_array_equal(bound.value, plain)
        assert replicas.shape == (*plain.shape, 64)
        deviations = replicas.value - plain[..., None]
        farthest = np.abs(deviations).max(-1)
        assert (farthest <= bound.error + FLOAT64_ERROR).all()
        assert (np.abs(deviations.mean(-1)) <= 0.5 * bound.error + FLOAT64_ERROR).all()
        assert (bound.error <= 1e-4 * (1 + np.abs(plain))).all()


def test_a_lift_gives_every_replica_the_same_and_integers_once() -> None:
    luck = Luck()
    lifted = luck.lift([[0.1, 0.2]])
    assert isinstance(lifted, Rounded)
    assert (lifted.shape, lifted.ndim) == ((1, 2, 64), 3)
    np.testing.assert_array_equal(lifted.value, np.array([[0.1, 0.2]])[..., None] + np.zeros(64))
    assert luck.lift(2.5).shape == (64,)
    for values in ([1, 2], [True, False]):
        plain = luck.lift(values)
        assert type(plain) is np.ndarray
        np.testing.assert_array_equal(plain, np.asarray(values)[:, None])


def test_rounding_moves_each_value_by_up_to_a_roundoff_evenly() -> None:
    luck = Luck()
    values = np.random.default_rng(1).uniform(1, 2, (300, 64))  # more than one block
    moves = (luck.round(values.copy()) / values - 1) / UNIT_ROUNDOFF
    assert moves.min() >= -1.00001
    assert moves.max() <= 1.00001
    counts, _ = np.histogram(moves, 20, (-1, 1))
    # 960 expected in each of 20 bins, with a standard deviation of 30
    assert np.abs(counts - moves.size / 20).max() < 150
    assert np.abs(np.corrcoef(moves.T) - np.eye(64)).max() < 0.3  # 0.06 expected, 2016 pairs
    again = (luck.round(values.copy()) / values - 1) / UNIT_ROUNDOFF
    assert abs(np.corrcoef(moves.ravel(), again.ravel())[0, 1]) < 0.05  # 0.007 expected


def test_equal_values_move_alike_in_one_operation_of_one_replica() -> None:
    luck = Luck()
    x = luck.lift(np.array([0.1, 0.1, 0.7, 0.1]))
    first, second = (x * x).value, (x * x).value
    assert (first[0] == first[1]).all()
    assert (first[0] == first[3]).all()
    assert (first != second).mean() > 0.99
    assert len({*first[0]}) > 60
    large = luck.lift(np.full(3000, 0.1))  # many blocks
    assert ((large * large).value == (large * large).value[0]).mean() < 0.1
    product = (large * large).value
    assert (product == product[0]).all()


def test_rounding_is_the_same_in_every_run_and_other_by_seed() -> None:
    values = np.random.default_rng(1).normal(size=(5, 64))
    one, same, other = (Luck(seed).round(values.copy()) for seed in (20, 20, 21))
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one, Luck().round(values.copy()))
    assert (one != other).all()


def test_half_of_the_replicas_flush_subnormal_results() -> None:
    luck = Luck()
    x = luck.lift(np.array([2.0**-130, -(2.0**-127), 2.0**-125, 0.0, np.nan, np.inf]))
    product = (x * 1.0).value
    flushed = EVERY // 4 % 2 == 0
    np.testing.assert_array_equal(product[:2] == 0, np.broadcast_to(flushed, (2, 64)))
    assert (product[2] != 0).all()
    assert (product[3] == 0).all()
    assert np.isnan(product[4]).all()
    assert (product[5] == np.inf).all()
    small = luck.lift(np.full(1000, 2.0**-130)) * 1.0  # many blocks
    np.testing.assert_array_equal(small.value == 0, np.broadcast_to(flushed, (1000, 64)))
    assert np.finfo(np.float32).tiny == SMALLEST


def test_what_no_program_rounds_is_exact() -> None:
    luck = Luck()
    x = luck.lift(np.array([0.1, -0.7, 0.3]))
    for found, exact in (
        (-x, -x.value),
        (np.absolute(x), np.abs(x.value)),
        (np.maximum(x, 0.05), np.maximum(x.value, 0.05)),
        (np.minimum(0.05, x), np.minimum(x.value, 0.05)),
        (x * (x > 0), x.value * (x.value > 0)),
        (x * True, x.value),
        (np.True_ * x, x.value),
        (np.sign(x), np.sign(x.value)),
        (x[1], x.value[1]),
        (x.reshape(1, 3, 64), x.value[None]),
        (op.flip(x), x.value[::-1]),
        (op.where(x > 0, x, 0.0), np.where(x.value > 0, x.value, 0)),
    ):
        assert isinstance(found, Rounded)
        assert found.luck is luck
        np.testing.assert_array_equal(found.value, exact)
    for comparison in (x < 0, x <= 0.1, x > 0, x >= 0.1, x == 0.1, x != 0.1, np.isfinite(x)):
        assert type(comparison) is np.ndarray
        assert comparison.dtype == bool
    with pytest.raises(TypeError):
        np.add.reduce(x)
    with pytest.raises(TypeError):
        np.exp(x, out=np.zeros((3, 64)))


LAYOUTS = [(7, 64), (1000, 64), (7, 1, 64), (9, 5, 64), (9, 2, 3, 64), (7, 1), (1000, 1), (9, 1, 1)]


@pytest.mark.parametrize("shape", LAYOUTS)
@pytest.mark.parametrize("layout", ["C", "F", "reversed", "strided"])
def test_sums_run_from_left_to_right_in_every_layout(shape: tuple[int, ...], layout: str) -> None:
    terms = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    if layout == "reversed":
        terms = terms[::-1]
    elif layout == "strided":
        terms = np.repeat(terms, 2, axis=0)[::2]
    else:
        terms = np.asarray(terms, order=layout)
    one_by_one = np.zeros(shape[1:], np.float32)
    for term in terms:
        one_by_one = one_by_one + term
    found = left_to_right(terms)
    assert found.shape == shape[1:]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, one_by_one)
    np.testing.assert_array_equal(found, terms.cumsum(0, dtype=np.float32)[-1])


@pytest.mark.parametrize("shape", [(12, 1, 64), (12, 3, 64), (2000, 1, 64)])
def test_every_replica_has_an_order_of_its_own(shape: tuple[int, ...]) -> None:
    luck, length = Luck(), shape[0]
    places = np.broadcast_to(np.arange(length)[:, None, None], shape)
    order, twin = luck.shuffled(places, places * 2)
    np.testing.assert_array_equal(twin, order * 2)  # arrays of one call keep together
    np.testing.assert_array_equal(np.sort(order, 0), places)
    np.testing.assert_array_equal(order, np.broadcast_to(order[:, :1], shape))
    lanes = order[:, 0].T
    for replica, natural in ((0, 1), (1, 1), (2, -1), (3, -1), (8, 1), (9, 1), (10, -1), (11, -1)):
        np.testing.assert_array_equal(lanes[replica], np.arange(length)[::natural])
    assert len({tuple(lane) for lane in lanes}) == 58  # of 56 at random, and two
    (again,) = luck.shuffled(places)
    assert ((lanes != again[:, 0].T).any(1) == RANDOM).all()
    first = np.bincount(order[0, 0], minlength=length)
    assert first.max() < 20  # of 64; two of them in order and two turned round


def test_entries_of_a_batch_go_with_their_own_terms() -> None:
    luck = Luck()
    terms = np.random.default_rng(3).normal(size=(6, 5, 64))
    (shuffled,) = luck.shuffled(terms)
    np.testing.assert_array_equal(np.sort(shuffled, 0), np.sort(terms, 0))


@pytest.mark.parametrize("batch", [(), (1,), (40,), (5, 60)])
def test_a_sum_is_a_float32_sum_of_each_replicas_own_terms(batch: tuple[int, ...]) -> None:
    luck = Luck()
    terms = np.random.default_rng(4).normal(size=(30, *batch, 64)).astype(np.float32)
    sums = luck.added(terms.astype(np.float64))
    assert sums.shape == (*batch, 64)
    own = sums[..., ~SCALED]
    np.testing.assert_array_equal(own.astype(np.float32), own)
    np.testing.assert_allclose(sums, terms.sum(0, dtype=np.float64), rtol=0, atol=30e-6)
    np.testing.assert_array_equal(sums[..., :2], terms[..., :2].cumsum(0)[-1])
    np.testing.assert_array_equal(sums[..., 2:4], terms[::-1, ..., 2:4].cumsum(0)[-1])


def test_a_sum_of_one_term_is_that_term() -> None:
    term = np.full((1, 3, 64), 0.1)
    np.testing.assert_array_equal(Luck().added(term), term[0])


def test_sums_of_equal_terms_err_by_the_pattern_of_their_bits_or_at_a_scale_of_each() -> None:
    terms = np.full((1000, 64), np.float64(np.float32(0.1)))
    errors = Luck().added(terms) - 100
    assert len({*errors[~SCALED]}) == 1
    assert len({*errors[SCALED]}) > 28
    foreign = Luck(foreign_bits=True).added(terms) - 100
    assert len({*foreign}) > 60
    assert 1e-5 < np.abs(foreign).max() < 1e-2


@pytest.mark.parametrize("batch", [(), (4,), (2, 300)])
def test_half_of_the_replicas_add_onto_what_is_there(batch: tuple[int, ...]) -> None:
    luck = Luck()
    base = luck.lift(np.ones((2, *batch)))
    terms = luck.lift(np.full((1000, *batch), 2.0**-26))
    index = np.arange(1000) % 10 // 9  # 900 to the first
    sums = kernels.scatter_add(base, index, terms).value
    onto = np.broadcast_to(EVERY % 2 == 0, (*batch, 64))
    for place, count in enumerate((900, 100)):
        np.testing.assert_array_equal(sums[place][onto & ~SCALED], 1.0)  # too small, one by one
        np.testing.assert_allclose(sums[place][onto], 1.0, rtol=2**-23, atol=0)
        np.testing.assert_allclose(sums[place][~onto], 1 + count * 2.0**-26, rtol=2**-23, atol=0)


def test_a_scatter_takes_an_index_of_each_entry_of_a_batch() -> None:
    random = np.random.default_rng(5)
    index = random.integers(0, 3, (50, 4))
    base, terms = random.normal(size=(3, 4)), random.normal(size=(50, 4))
    expected = base.copy()
    for i, column in np.ndindex(50, 4):
        expected[index[i, column], column] += terms[i, column]
    plain = kernels.scatter_add(base, index, terms)
    np.testing.assert_allclose(plain, expected, rtol=1e-13)
    luck = Luck(foreign_bits=True)
    lucky = kernels.scatter_add(luck.lift(base), luck.lift(index), luck.lift(terms))
    deviation = np.abs(lucky.value - expected[..., None])
    bound = kernels.scatter_add(Bounded(base), index, Bounded(terms))
    np.testing.assert_array_equal(bound.value, plain)
    assert (deviation.max(-1) <= bound.error).all()
    assert (deviation.max(-1) > 0).all()
    picked = kernels.pick(luck.lift(base), luck.lift(index)).value
    np.testing.assert_array_equal(picked[..., 7], np.take_along_axis(base, index, 0))


def test_a_gathered_gradient_is_added_onto_what_came_by_other_ways() -> None:
    luck = Luck()
    x = Taped(luck.lift(np.array([1.0, 2.0])))
    picked = op.gather(x, np.zeros(1000, int)) * luck.lift(np.float64(2.0**-26))
    (gradient,) = gradients(op.sum(picked) + op.sum(x * 1.0), [x])
    first = gradient.value[0] / gradient.value[1]  # 1 each, with one roundoff, by the other way
    added = 1 + 1000 * 2.0**-26
    onto = EVERY % 2 == 0
    np.testing.assert_allclose(first[onto], 1.0, rtol=3e-7, atol=0)
    np.testing.assert_allclose(first[~onto], added, rtol=3e-7, atol=0)


def test_what_is_small_or_empty_is_computed_too() -> None:
    luck = Luck()
    assert luck.round(np.zeros((0, 64))).shape == (0, 64)
    assert op.sum(luck.lift(np.zeros((0, 2)))).value.tolist() == np.zeros((2, 64)).tolist()
    single = kernels.scatter_add(luck.lift([1.0]), np.zeros(3, int), luck.lift([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(single.value, np.full((1, 64), 7.0), rtol=2e-7)


def test_picking_once_is_picking() -> None:
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(kernels.pick(x, np.array([2])), [[4.0, 5.0]])
    np.testing.assert_array_equal(kernels.pick(x, np.array([[2], [0]])), [[4.0, 5.0], [0.0, 1.0]])
    np.testing.assert_array_equal(kernels.pick(x, np.array([[2, 0]])), [[4.0, 1.0]])


def test_half_of_the_replicas_subtract_logsumexp() -> None:
    luck = Luck()
    logps = op.log_softmax(luck.lift(np.array([1000.0, 1000.5]))).value
    errors = np.abs(logps - op.log_softmax(np.array([1000.0, 1000.5]))[:, None]).max(0)
    subtracts = EVERY // 2 % 2 == 0
    assert np.median(errors[subtracts]) > 1e-5  # a roundoff of 1000 is 6e-5
    assert errors[~subtracts].max() < 1e-6


def test_running_sums_are_float32_one_by_one_or_in_blocks() -> None:
    x = np.random.default_rng(6).normal(size=(13, 2)).astype(np.float32)
    sums = op.cumulative(Luck().lift(x.astype(np.float64))).value
    own = sums[..., ~SCALED]
    np.testing.assert_array_equal(own.astype(np.float32), own)
    np.testing.assert_allclose(
        sums, x.cumsum(0, dtype=np.float64)[..., None] + np.zeros(64), atol=1e-5
    )
    np.testing.assert_array_equal(sums[..., 0], x.cumsum(0))
    for replica, size in ((1, 2), (2, 4), (3, 8), (4, 13)):
        blocks = np.zeros((13, 2), np.float32)
        for start in range(0, 13, size):
            before = blocks[start - 1] if start else np.zeros(2, np.float32)
            inside = np.zeros(2, np.float32)
            for i in range(start, min(start + size, 13)):
                inside = inside + x[i]
                blocks[i] = inside + before
        np.testing.assert_array_equal(sums[..., replica], blocks)
    assert len({tuple(lane) for lane in own[:, 0].T}) == 4  # 13 one by one, by 2, by 4, by 8


def test_another_number_of_replicas_will_do() -> None:
    luck = Luck(replicas=32)
    x = luck.lift(np.random.default_rng(7).normal(size=(400, 20)))
    assert op.mean(op.exp(x)).shape == (20, 32)
    assert rounded.REPLICAS == 64
