"""A function of the user's as an objective's loss: handed what it asks for, in its own shape.

One code for every framework, by the operations that definitions are written in.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from parity.arithmetic import operations as op
from parity.convention import MASK, Convention, offered
from parity.objectives import Objective
from parity.objectives.evaluation import Scope
from parity.objectives.spec import Fault

__all__ = ["Layout", "loss_of"]

Call = Callable[[dict[str, Any], tuple[int, ...]], Any]


class Layout(NamedTuple):
    """Where samples or pairs stand: `B,T` is two rows, the first mostly padding.

    Attributes:
        shape: N, N,1 or B,T.
        length: how many there are.
    """

    shape: str
    length: int

    @property
    def width(self) -> int:
        """Of the second row, which is full."""
        return (2 * self.length + 2) // 3

    @property
    def outer(self) -> tuple[int, ...]:
        """The shape of one value each."""
        if self.shape == "B,T":
            return (2, self.width)
        return (self.length, 1) if self.shape == "N,1" else (self.length,)

    def laid(self, values: Any, padding: float) -> Any:
        """Values [N] in their shape."""
        if self.shape == "B,T":
            space, first = _space(values), self.length - self.width
            fill = int(padding) if "int" in str(values.dtype) else padding
            filling = space.full((self.width - first,), fill, dtype=values.dtype)
            values = space.concat([values[:first], filling, values[first:]])
        return values.reshape(self.outer)

    def taken(self, values: Any) -> Any:
        """What stands at the samples: [N]."""
        flat = values.reshape((-1,))
        if self.shape != "B,T":
            return flat
        first = self.length - self.width
        return _space(flat).concat([flat[:first], flat[self.width :]])


def _space(values: Any) -> Any:
    from array_api_compat import array_namespace

    return array_namespace(values)


def loss_of(
    call: Call, objective: Objective, convention: Convention, wanted: set[str]
) -> Callable[..., Any]:
    """The loss as the objective has it, from the function as the user states it.

    Args:
        call: takes our inputs by name and the shape of one value a sample; returns what the
            function returned.
        objective: what it is said to compute.
        convention: how it states it.
        wanted: the inputs that it takes.
    """
    chosen = convention.in_force(objective)
    axes = offered(objective)
    paddings = {each.name: each.padding for each in objective.inputs}
    paddings |= {value.name: value.padding for value in objective.values}
    paddings[MASK] = 0.0
    given_for = {
        name: instead
        for c in objective.choices
        for name, instead in c.offers.get(chosen[c.name], {}).items()
    }
    open_inputs = () if chosen.get("frozen") == "caller" else tuple(objective.named("frozen"))
    as_stated = Fault("", "", "", "", unfrozen=open_inputs)

    def loss(*inputs: Any) -> Any:
        given = dict(zip(objective.axes, inputs, strict=True))
        scope = Scope(objective, given, convention.choices, as_stated)
        counted = next(
            n for n, names in objective.axes.items() if names[:1] == (objective.counted,)
        )
        layout = Layout(chosen.get("shape", "N"), given[counted].shape[0])
        floats = given[objective.parameter]

        def handed(name: str) -> Any:
            if name == MASK:
                value = _space(floats).ones((layout.length,), dtype=floats.dtype)
            else:
                value = scope[given_for.get(name, name)]
            if axes[name] != (objective.counted,):
                return value
            return layout.laid(value, paddings[name])

        result = call({name: handed(name) for name in sorted(wanted)}, layout.outer)
        if chosen.get("reduction") == "per-sample":
            result = op.mean(layout.taken(result))
        elif chosen.get("reduction") == "sum":
            result = result / layout.length
        return -result if chosen.get("sign") == "objective" else result

    return loss
