"""Problems with every table filled."""

from collections.abc import Iterator
from typing import Any

import msgspec

from parity.problem import Problem

SMALL = """\
name = "small"

[reward]
features = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
preferences = [[0, 1], [0, 2], [1, 2]]
updates = 10
rate = 0.1
weights = [0.5, 0.25]

[ppo]
logits = [0.2, 0.0, -0.2]
reference_logits = [0.1, 0.0, 0.3]
rollouts = 4
samples = 8
epochs = 3
rate = 0.15
beta = 0.2
clip = 0.3
seed = 11

[dpo]
logits = [0.4, 0.0, -0.4]
reference_logits = [0.6, 0.0, 0.3]
preferences = [[2, 1]]
updates = 12
rate = 0.7
beta = 0.35
"""

SCORED = """\
name = "scored"

[reinforce]
logits = [0.3, 0.0]
reference_logits = [0.0, 0.1]
scores = [1.0, -1.0]
rollouts = 3
samples = 4
rate = 0.5
beta = 0.8
seed = 7
"""


def document(problem: Problem) -> bytes:
    """Writes a problem as TOML; msgspec needs another package for that."""

    def table(values: dict[str, Any]) -> Iterator[str]:
        tables_last = sorted(values.items(), key=lambda item: isinstance(item[1], dict))
        for key, value in tables_last:
            if isinstance(value, dict):
                yield f"[{key}]"
                yield from table(value)
            elif value is not None:
                yield f"{key} = {value!r}" if not isinstance(value, str) else f'{key} = "{value}"'

    text = "\n".join(table(msgspec.to_builtins(problem))).replace("(", "[").replace(")", "]")
    return text.encode()
