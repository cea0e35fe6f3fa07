"""Settings: such as the picker can be made of, or a `SettingsError` with every mistake."""

import tempfile
from pathlib import Path

from extproc.app.options import dispatcher_options
from extproc.envoy_config.options import OptionsError, envoy_options
from extproc.settings import Settings, SettingsError, load_settings
from extproc.settings.client_keys import read_client_keys
from extproc.settings.endpoints_file import parse_endpoints
from extproc.settings.environment import variable_of
from extproc.settings.keys import every_key
from rigs.fuzz.reader import Reader

_FOLDER = tempfile.TemporaryDirectory(prefix="coxswain-fuzz-")
FILE = Path(_FOLDER.name) / "file"
VARIABLES = sorted(variable_of(path) for path in every_key(Settings))


def check(data: bytes) -> None:
    """The first byte says what it is."""
    which, content = data[0] % 4 if data else 0, data[1:]
    try:
        if which == 0:
            FILE.write_bytes(content)
            _use(load_settings(FILE, environ={}))
        elif which == 1:
            parse_endpoints(content, "endpoints")
        elif which == 2:
            FILE.write_bytes(content)
            for entry in read_client_keys(FILE):  # none where all were revoked
                assert entry.name and len(entry.digest) == 64
        else:
            _use(load_settings(environ=_environment(Reader(content))))
    except SettingsError as error:
        assert str(error) and error.problems
    except OptionsError as error:  # what keeps Envoy's configuration from being printed
        assert str(error)


def _environment(reader: Reader) -> dict[str, str]:
    return {reader.choice(VARIABLES): reader.text() for _ in range(reader.number(4))}


def _use(settings: Settings) -> None:
    dispatcher_options(settings)
    envoy_options(settings)
    repr(settings)
