"""What is wrong with a document, in one line: field, value and expectation."""

import re
import reprlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

__all__ = ["explain"]

_NONE: Mapping[str, str] = MappingProxyType({})


def explain(
    error: msgspec.ValidationError,
    raw: Any,
    whole: str = "document",
    choices: Mapping[str, str] = _NONE,
) -> str:
    """Turns msgspec's complaint into field, value and expectation.

    Args:
        error: the complaint.
        raw: the document that it is about, as plain objects.
        whole: what the document as a whole is called.
        choices: name of a field to what may stand there, where msgspec says only "invalid".
    """
    complaint, _, place = str(error).partition(" - at `$")
    field, value = place.strip("`."), raw
    for key, position in re.findall(r"\.([^.\[`]+)|\[(\d+)\]", place):
        value = value[key] if key else value[int(position)]
    about = re.match(r"(?s)Object (missing required|contains unknown) field `(.*)`", complaint)
    if about:
        field = f"{field}.{about[2]}".lstrip(".")
        if about[1] == "missing required":
            return f"{field}: missing; expected a value"
        return f"{field}: got {reprlib.repr(value[about[2]])}; expected no such field"
    expected = complaint.removeprefix("Expected ").replace("`", "").split(", got")[0]
    if expected.startswith("Number"):  # "Number out of range"
        expected = "a number within float64"
    if complaint.startswith("Invalid"):
        parts = [part for part in re.split(r"[.\[]", field) if part in choices]
        expected = choices[parts[-1]] if parts else expected
    return f"{field or whole}: got {reprlib.repr(value)}; expected {expected}"
