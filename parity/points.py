"""Fixed states at which an objective's value and gradient are evaluated."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from numpy.typing import NDArray

from parity.files import digest, read_arrays, write_arrays
from parity.objectives import find

__all__ = ["Points"]


class PointsHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The JSON header of a points file."""

    schema_version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    objective: str
    grid: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Points:
    """States of one objective, stacked to one shape so that they compile once.

    Attributes:
        objective: its name, or where a user declares it.
        grid: name of the set, free text.
        labels: what each point shows, one line each.
        inputs: the loss function's arguments with a leading point axis; floats are float32
            values held as float64, indices are int64.
    """

    objective: str
    grid: str
    labels: tuple[str, ...]
    inputs: Mapping[str, NDArray[Any]]

    @property
    def sizes(self) -> dict[str, int]:
        """Length of every axis: point, and those of the objective's inputs."""
        sizes = {"point": len(self.labels)}
        for name, axes in find(self.objective).axes.items():
            sizes |= dict(zip(axes, self.inputs[name].shape[1:], strict=True))
        return sizes

    @property
    def digest(self) -> str:
        """SHA-256 of the objective and its inputs."""
        return digest([self.objective, list(self.labels)], self.inputs)

    def save(self, path: Path) -> None:
        """Writes the points as one safetensors file, whole or not at all."""
        header = PointsHeader(objective=self.objective, grid=self.grid, labels=self.labels)
        write_arrays(path, header, self.inputs)

    @classmethod
    def load(cls, path: Path) -> "Points":
        """Reads what `save` wrote."""
        header, arrays = read_arrays(path, PointsHeader)
        ordered = {name: arrays[name] for name in find(header.objective).axes}
        return cls(header.objective, header.grid, header.labels, ordered)
