"""JSON to and from an env that is never trusted: strict, bounded, and with one error for each way it can fail."""

from __future__ import annotations

import json
from typing import Any, NoReturn

__all__ = ["JsonSyntaxError", "JsonValueError", "decode", "encode"]


class JsonSyntaxError(ValueError):
    """The text isn't JSON at all."""


class JsonValueError(ValueError):
    """A value that JSON text can spell but that can't be passed on: NaN, a lone surrogate, too deep, too long a number.

    Kept apart from `JsonSyntaxError` since a tool's own data can bring it about, so a policy can, while only a broken
    server sends what isn't JSON.
    """


def decode(text: bytes | bytearray) -> Any:
    """Read one JSON document in UTF-8. Raises JsonSyntaxError or JsonValueError, and nothing else."""
    try:
        value = _DECODER.decode(text.decode("utf-8"))
        # Python's json gives lone surrogates through; they'd fail much later, when somebody encodes the text. Only an
        # escape can spell one, so texts without `\ud` cost one search.
        if b"\\ud" in text or b"\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise JsonSyntaxError(f"not JSON: {error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise JsonValueError(f"text that isn't UTF-8 (byte {error.start})") from None
    except UnicodeEncodeError:
        raise JsonValueError("a lone surrogate, which isn't Unicode text") from None
    except RecursionError:
        raise JsonValueError("values nested too deeply") from None
    except JsonValueError:
        raise
    except ValueError as error:  # an integer of more digits than Python reads
        raise JsonValueError(str(error)) from None
    return value


def encode(value: Any) -> bytes:
    """Write one JSON document in UTF-8, as compact as it gets. Raises JsonValueError, and nothing else."""
    try:
        return _ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError:
        raise JsonValueError("a lone surrogate, which isn't Unicode text") from None
    except RecursionError:
        raise JsonValueError("values nested too deeply") from None
    except (TypeError, ValueError) as error:  # NaN, an integer of too many digits, an object of ours
        raise JsonValueError(str(error)) from None


def _refuse(constant: str) -> NoReturn:
    raise JsonValueError(f"{constant}, which JSON has no number for")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
