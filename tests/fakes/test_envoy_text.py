"""Claims about tests/fakes/envoy_text.py."""

from __future__ import annotations

import pytest

from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import HostPort, Mode
from tests.fakes.envoy_text import options_with, printed


@pytest.mark.parametrize("mode", list(Mode))
def test_it_is_what_the_product_prints(mode: Mode) -> None:
    """Also with other ports, for which nothing is printed again."""
    options = options_with(
        mode=mode,
        metrics="0.0.0.0:9902",
        other_pickers=("10.0.0.2:9002", "10.0.0.3:9002"),
        other_status=(HostPort("10.0.0.2", 9090),),
        tracing="collector:4317",
    )
    assert printed(options) == bootstrap(options)
    other = options_with(options, listen="127.0.0.1:10000", picker=HostPort("b", 9000))
    assert printed(other) == bootstrap(other)
