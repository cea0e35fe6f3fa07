"""Reads API keys; the settings contain only their sources."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from extproc.security.secret_file import SecretFileError, is_header_value, read_secret
from extproc.settings.access import Access
from extproc.settings.problems import Problem, SettingsError


def read_api_key(endpoint: Access, environ: Mapping[str, str] | None = None) -> str | None:
    """The API key of `endpoint`, None without one. Blocks on the disk for a key file.

    Raises SettingsError if the key cannot be read.
    """
    environ = os.environ if environ is None else environ
    if endpoint.api_key_env is not None:
        key = environ.get(endpoint.api_key_env, "").strip()
        source = f"the environment variable {endpoint.api_key_env}"
    elif endpoint.api_key_file is not None:
        source = f"the file {endpoint.api_key_file}"
        try:
            key = read_secret(Path(endpoint.api_key_file))
        except SecretFileError as error:
            raise _error(endpoint, str(error)) from None
    else:
        return None
    if not key:
        raise _error(endpoint, f"{source} is empty or not set")
    if not is_header_value(key):
        raise _error(
            endpoint, f"{source} contains characters that are not allowed in an HTTP header"
        )
    return key


def read_api_keys(
    endpoints: Iterable[Access], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The API key of each endpoint that has one, by its `address`; raises like `read_api_key`."""
    keys: dict[str, str] = {}
    problems: list[Problem] = []
    for endpoint in endpoints:
        try:
            key = read_api_key(endpoint, environ)
        except SettingsError as error:
            problems += error.problems
            continue
        if key is not None:
            keys[endpoint.address] = key
    if problems:
        raise SettingsError(problems)
    return keys


def _error(endpoint: Access, message: str) -> SettingsError:
    return SettingsError([Problem(where=endpoint.address, key="API key", message=message)])
