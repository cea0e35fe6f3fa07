"""Rules about paths as patterns of Envoy's routes, each small enough for Envoy.

Envoy 1.40 takes no pattern that compiles to a program of more than 100 instructions
(`re2.max_program_size.error_level`), so a set of rules becomes several patterns. Program sizes are
estimated: one instruction for each character that no other path of the set begins with, too.
"""

from collections.abc import Collection, Iterator

from extproc.security.path_rule import PathRule, blocked_pattern, open_pattern

MAX_SIZE = 95
OVERHEAD = 20
"""What a pattern takes besides its paths: a trailing slash, a query, any prefix."""
BELOW = 6
SUFFIX = 8
QUERY = r"(?:\?.*)?"


def blocked_patterns(rules: Collection[PathRule]) -> list[str]:
    """Patterns for whole paths without a query; together they block what `rules` do."""
    return [blocked_pattern(part) for part in _parts(rules, "")]


def path_patterns(rules: Collection[PathRule], prefix: str) -> list[str]:
    """Patterns for whole paths without a query; together they are what `rules` name."""
    return [open_pattern(part, prefix) for part in _parts(rules, prefix)]


def open_patterns(rules: Collection[PathRule], prefix: str) -> list[str]:
    """Patterns for the header `:path`, with a query; together they open what `rules` do."""
    return [open_pattern(part, prefix) + QUERY for part in _parts(rules, prefix)]


def _parts(rules: Collection[PathRule], prefix: str) -> Iterator[list[PathRule]]:
    """The rules, sorted, as parts that each fit into one pattern."""
    part: list[PathRule] = []
    for rule in sorted(set(rules), key=_order):
        if part and _size([*part, rule], prefix) > MAX_SIZE:
            yield part
            part = []
        part.append(rule)
    if part:
        yield part


def _order(rule: PathRule) -> tuple[bool, str, str]:
    return rule.and_below, rule.path, rule.suffix


def _size(rules: Collection[PathRule], prefix: str) -> int:
    beginnings = {rule.path[:end] for rule in rules for end in range(1, len(rule.path) + 1)}
    extra = sum(1 + BELOW * rule.and_below for rule in rules)
    extra += SUFFIX * len({rule.path for rule in rules if rule.suffix})
    extra += sum(len(rule.suffix) for rule in rules)
    return OVERHEAD + len(prefix) + len(beginnings) + extra
