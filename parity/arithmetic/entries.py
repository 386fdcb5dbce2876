"""What the arithmetics share: values that carry something along when their entries move."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

__all__ = ["EXACT", "Entries", "exactly", "masks", "moved"]

EXACT = frozenset(
    {
        np.negative,
        np.absolute,
        np.maximum,
        np.minimum,
        np.less,
        np.less_equal,
        np.greater,
        np.greater_equal,
        np.equal,
        np.not_equal,
        np.isfinite,
        np.isnan,
        np.sign,
    }
)
"""What no float32 program rounds."""

Value = Any
Array = NDArray[Any]


class Entries(NDArrayOperatorsMixin):
    """Float64 values in an arithmetic of their own; operators are NumPy's.

    Attributes:
        value: the plain values.
    """

    value: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.ndim

    def moved(self, change: Callable[[Array], Array]) -> Self:
        """Moves entries, and what they carry along: what computes nothing."""
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Self:
        return self.moved(lambda array: array[index])

    def reshape(self, *shape: Any) -> Self:
        """The same entries in another shape."""
        return self.moved(lambda array: array.reshape(*shape))


def exactly(x: Value) -> Any:
    """The plain values, on which branches are decided."""
    return x.value if isinstance(x, Entries) else x


def moved(x: Value, change: Callable[[Any], Any]) -> Value:
    """Moves entries without computing, in any arithmetic."""
    return x.moved(change) if isinstance(x, Entries) else change(x)


def masks(x: Value) -> bool:
    """Whether a value is of booleans, by which one multiplies exactly."""
    return isinstance(x, bool) or (hasattr(x, "dtype") and x.dtype.kind == "b")
