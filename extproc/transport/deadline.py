"""Reads the `grpc-timeout` header."""

from typing import Final

UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
MAX_DIGITS: Final = 8


def timeout_s(value: bytes) -> float:
    """The timeout in seconds (gRPC over HTTP/2, "Timeout"). Raises `ValueError`."""
    digits, unit = value[:-1], value[-1:].decode("latin-1")
    if not digits.isdigit() or len(digits) > MAX_DIGITS or unit not in UNITS_S:
        raise ValueError("an invalid grpc-timeout")
    return int(digits) * UNITS_S[unit]
