"""A record as JSON, for files and terminals: {"key": …, "value": …, "headers": [[name, value], …]}.

Key and values are null, text, or {"base64": …} where bytes are no text. Other members of the object are for people.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Wire(NamedTuple):
    """A record's three parts, as bytes."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class NotARecordError(ValueError):
    """The text does not describe a record; the message says what is wrong."""


def dump(record: Wire, **about: str) -> str:
    """One line of JSON, `about` first."""
    headers = [[name, _text(value)] for name, value in record.headers]
    return json.dumps({**about, "key": _text(record.key), "value": _text(record.value), "headers": headers}, ensure_ascii=False)


def load(text: str) -> list[tuple[str, Wire]]:
    """All records of a file, each with its name: one object, an array of them, or one object a line. Raises `NotARecordError`."""
    return [(_name(item, number), _wire(item)) for number, item in enumerate(_items(text), start=1)]


def _items(text: str) -> Iterator[Any]:
    try:
        whole = json.loads(text)
    except ValueError:
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _line(line, number)
        return
    yield from whole if isinstance(whole, list) else [whole]


def _line(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise NotARecordError(f"line {number} is no JSON: {error}") from None


def _name(item: Any, number: int) -> str:
    return str(item.get("name", number)) if isinstance(item, dict) else str(number)


def _wire(item: Any) -> Wire:
    if not isinstance(item, dict) or "headers" not in item or "value" not in item:
        raise NotARecordError('a record is an object with "key", "value" and "headers", such as `contract samples` prints')
    pairs = list(item["headers"].items()) if isinstance(item["headers"], dict) else item["headers"]
    if not isinstance(pairs, list) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):  # noqa: PLR2004 # a pair
        raise NotARecordError('"headers" is an object or an array of [name, value]')
    return Wire(_bytes(item.get("key")), _bytes(item["value"]), tuple((str(name), _bytes(value)) for name, value in pairs))


def _text(part: bytes | None) -> str | dict[str, str] | None:
    try:
        return None if part is None else part.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(part or b"").decode()}


def _bytes(part: Any) -> bytes | None:
    if part is None:
        return None
    if isinstance(part, str):
        return part.encode()
    if isinstance(part, dict) and isinstance(part.get("base64"), str):
        try:
            return base64.b64decode(part["base64"], validate=True)
        except ValueError as error:
            raise NotARecordError(f"{part['base64']!r} is no base64: {error}") from error
    raise NotARecordError(f'keys and values are null, text or {{"base64": …}}, not {part!r}')
