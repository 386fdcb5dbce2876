"""Two implementations may differ by the sum of their allowances, and by no more."""

from dataclasses import replace

import numpy as np
import pytest

from parity import gate


@pytest.mark.parametrize(("apart", "verdict"), [(1.8, "match"), (2.2, "divergent")])
def test_a_pair_is_allowed_the_sum_of_both(trace_of, problems, expected_of, apart, verdict):
    lesson, name = "posttraining-05", "dpo/probabilities"
    oracle, run = expected_of(lesson), trace_of(lesson, "torch")

    def moved(implementation: str, share: float):
        values = oracle.values[name] + share * apart * oracle.allowed[name]
        quantity = replace(run.quantities[name], values=values.astype(np.float32))
        quantities = {**run.quantities, name: quantity}
        return replace(run, implementation=implementation, quantities=quantities)

    traces = {"left": moved("left", 0.5), "right": moved("right", -0.5)}
    case = gate.Case(
        problem=problems[lesson],
        samples=None,
        dtype="float32",
        traces=traces,
        steps={
            side: gate.rederive(problems[lesson], None, t, "float32") for side, t in traces.items()
        },
        trajectory=oracle,
    )
    (pair,) = [
        c
        for c in gate.judge(case).comparisons
        if (c.quantity, c.mode, c.left, c.right) == (name, "trajectory", "left", "right")
    ]
    assert pair.verdict == verdict
