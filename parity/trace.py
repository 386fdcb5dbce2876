"""What one implementation computed: ordered, named quantities and where they came from."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from numpy.typing import NDArray

from parity.errors import InputError
from parity.files import digest, read_arrays, write_arrays
from parity.objectives.spec import Declared, Kind

__all__ = ["Quantity", "Trace", "TraceHeader"]


@dataclass(frozen=True)
class Quantity:
    """One named array.

    Attributes:
        name: objective and quantity, e.g. `reward/gradient`.
        axes: one word per dimension, e.g. (rollout, epoch, action).
        kind: what sort of thing it is.
        values: the numbers, in the dtype in which they were computed.
    """

    name: str
    axes: tuple[str, ...]
    kind: Kind
    values: NDArray[Any]


class QuantityHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quantity's declaration in a trace file."""

    name: str
    axes: tuple[str, ...]
    kind: Kind
    dtype: str
    shape: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]


class TraceHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The JSON header of a trace file; the arrays follow under the quantities' names."""

    schema_version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    implementation: str
    dtype: str
    problem_digest: str
    samples_digest: str
    environment: dict[str, str]
    quantities: tuple[QuantityHeader, ...]
    digest: str


@dataclass(frozen=True)
class Trace:
    """The ordered quantities of one run, or of one evaluation of points.

    Attributes:
        implementation: free text: jax, torch, oracle.
        dtype: the floating dtype of the run, float32 or float64.
        quantities: name to quantity, in order of computation.
        problem_digest: what was solved.
        samples_digest: what was replayed; empty where nothing was.
        environment: versions and settings; part of no digest.
    """

    implementation: str
    dtype: str
    quantities: Mapping[str, Quantity]
    problem_digest: str = ""
    samples_digest: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.quantities[name].values

    def __contains__(self, name: str) -> bool:
        return name in self.quantities

    @property
    def digest(self) -> str:
        """SHA-256 of the declarations and values, whoever computed them."""
        return digest(
            [self.dtype, self.problem_digest, self.samples_digest, list(self._declarations())],
            {name: quantity.values for name, quantity in self.quantities.items()},
        )

    def _declarations(self) -> Iterator[QuantityHeader]:
        for name, quantity in self.quantities.items():
            values = quantity.values
            yield QuantityHeader(
                name, quantity.axes, quantity.kind, values.dtype.name, values.shape
            )

    def save(self, path: Path) -> None:
        """Writes the trace as one safetensors file, whole or not at all."""
        header = TraceHeader(
            implementation=self.implementation,
            dtype=self.dtype,
            problem_digest=self.problem_digest,
            samples_digest=self.samples_digest,
            environment=dict(self.environment),
            quantities=tuple(self._declarations()),
            digest=self.digest,
        )
        write_arrays(path, header, {name: q.values for name, q in self.quantities.items()})

    @classmethod
    def load(cls, path: Path) -> "Trace":
        """Reads a trace file and checks that it holds what it declares.

        Raises:
            InputError: missing, truncated or altered, or the arrays are not as declared.
        """
        header, arrays = read_arrays(path, TraceHeader)
        strangers = arrays.keys() - {declared.name for declared in header.quantities}
        if strangers:
            raise InputError(
                f"{path}: {min(strangers)}: not declared; expected declared arrays only"
            )
        quantities = {}
        for declared in header.quantities:
            values = arrays.get(declared.name)
            if values is None:
                raise InputError(f"{path}: {declared.name}: missing; expected as declared")
            found = (values.dtype.name, values.shape)
            if found != (declared.dtype, declared.shape):
                raise InputError(
                    f"{path}: {declared.name}: got {found[0]}{list(found[1])}; "
                    f"expected {declared.dtype}{list(declared.shape)} as declared"
                )
            quantities[declared.name] = Quantity(
                declared.name, declared.axes, declared.kind, values
            )
        trace = cls(
            implementation=header.implementation,
            dtype=header.dtype,
            quantities=quantities,
            problem_digest=header.problem_digest,
            samples_digest=header.samples_digest,
            environment=header.environment,
        )
        if trace.digest != header.digest:
            raise InputError(f"{path}: digest: got {trace.digest}; expected {header.digest}")
        return trace


def quantities_from(
    values: Mapping[str, NDArray[Any]], specs: Iterable[Declared]
) -> dict[str, Quantity]:
    """Names arrays as the catalogue does, in its order; arrays that it does not name are refused.

    Raises:
        ValueError: an array has no place in the catalogue.
    """
    named = {
        spec.name: Quantity(spec.name, spec.axes, spec.kind, values[spec.name])
        for spec in specs
        if spec.name in values
    }
    strangers = values.keys() - named.keys()
    if strangers:
        raise ValueError(f"not in the catalogue of quantities: {', '.join(sorted(strangers))}")
    return named
