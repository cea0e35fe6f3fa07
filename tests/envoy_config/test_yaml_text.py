"""Claims about extproc/envoy_config/yaml_text.py."""

from __future__ import annotations

import yaml
from envoy_data_plane.envoy.config.cluster.v3 import ClusterCommonLbConfig, OutlierDetection
from envoy_data_plane.envoy.config.core.v3 import Node
from envoy_data_plane.envoy.type.v3 import Percent

from extproc.envoy_config.messages import typed
from extproc.envoy_config.yaml_text import comment, render, tree


def test_zero_percent_is_spelled_out() -> None:
    """`{}` would be read as "not set" by people, and 50 % is Envoy's default."""
    config = ClusterCommonLbConfig(healthy_panic_threshold=Percent(value=0.0))
    assert tree(config) == {"healthy_panic_threshold": {"value": 0.0}}
    assert tree(ClusterCommonLbConfig()) == {}


def test_names_are_those_that_envoy_knows() -> None:
    """Snake case, also where a number is part of a name."""
    assert tree(OutlierDetection(enforcing_consecutive_5xx=0)) == {"enforcing_consecutive_5xx": 0}


def test_an_extension_says_its_type() -> None:
    found = tree(typed(Node(id="one")))
    assert found == {"@type": "type.googleapis.com/envoy.config.core.v3.Node", "id": "one"}


def test_what_is_printed_reads_back_in_its_order() -> None:
    """Lists are indented below their key, as in Envoy's own examples."""
    content = {"z": [{"b": 1, "a": "é: #"}], "a": True}
    text = render(content)
    assert yaml.safe_load(text) == content
    assert text.startswith("z:\n  - b: 1\n") and text.endswith("a: true\n")


def test_comments_have_no_blanks_at_their_ends() -> None:
    assert comment("\nfirst\n\n  second\n") == "# first\n#\n#   second\n"
