"""Rejections of malformed HTTP/1 requests must not wait for the picker.

Envoy rejects such a request and closes its connection in the same moment. A filter that holds the
rejection back, as ext_proc does to send it to the picker, holds it back for ever: the client reads
the end of the connection and no response. So the rejection is marked, by the header that says
clients its reason, and a match on that mark lets ext_proc skip it. See decision 0059.
"""

from typing import Final

import betterproto2
from envoy_data_plane.envoy.extensions.common.matching.v3 import ExtensionWithMatcher
from envoy_data_plane.envoy.extensions.filters.common.matcher.action.v3 import SkipFilter
from envoy_data_plane.envoy.type.matcher.v3 import (
    HttpRequestHeaderMatchInput,
    HttpResponseHeaderMatchInput,
)
from envoy_data_plane.xds.core.v3 import TypedExtensionConfig
from envoy_data_plane.xds.type.matcher.v3 import (
    Matcher,
    MatcherMatcherList,
    MatcherMatcherListFieldMatcher,
    MatcherMatcherListPredicate,
    MatcherMatcherListPredicatePredicateList,
    MatcherMatcherListPredicateSinglePredicate,
    MatcherOnMatch,
    RegexMatcher,
    RegexMatcherGoogleRe2,
    StringMatcher,
)

from extproc import header_names
from extproc.envoy_config import names
from extproc.envoy_config.messages import extension, typed

_NO_REQUEST: Final = ("low_version", "missing_host_header", "path_normalization_failed")
"""HTTP/1.0, no host, a path with a NUL or a fragment: what Envoy finds once it has the headers."""

IS_MALFORMED: Final = (
    f'response.code_details.startsWith("http1.") || response.code_details in {list(_NO_REQUEST)}'
)
"""Envoy's parser of HTTP/1 gave the request up, before its end or before it had a route."""

_MARKS: Final = (names.MALFORMED_HTTP, names.TOO_MANY_HEADERS, names.UNSUPPORTED_HTTP)
"""The second because trailers may be too large as well; the third because an upgrade is rejected
although it has a route, and would be an exchange of the picker's that nobody asked for."""


def unless_malformed(
    name: str, filter_: betterproto2.Message, *, or_has_server: bool = False
) -> ExtensionWithMatcher:
    """The filter `name`, which such a rejection bypasses, and if asked for a request that has its
    server."""
    marks = MatcherMatcherListPredicatePredicateList(predicate=[_has_mark(each) for each in _MARKS])
    causes = [MatcherMatcherListPredicate(or_matcher=marks)]
    if or_has_server:
        # The first: Envoy stops at what it cannot know yet.
        causes.insert(0, _HAS_SERVER)
    skip = MatcherOnMatch(
        action=TypedExtensionConfig(name="skip", typed_config=typed(SkipFilter()))
    )
    return ExtensionWithMatcher(
        extension_config=extension(name, filter_),
        xds_matcher=Matcher(
            matcher_list=MatcherMatcherList(
                matchers=[
                    MatcherMatcherListFieldMatcher(predicate=cause, on_match=skip)
                    for cause in causes
                ]
            )
        ),
    )


def _has_mark(reason: str) -> MatcherMatcherListPredicate:
    header = HttpResponseHeaderMatchInput(header_name=header_names.REASON)
    return _matches("reason", header, StringMatcher(exact=reason))


def _matches(
    name: str, header: betterproto2.Message, value: StringMatcher
) -> MatcherMatcherListPredicate:
    return MatcherMatcherListPredicate(
        single_predicate=MatcherMatcherListPredicateSinglePredicate(
            input=TypedExtensionConfig(name=name, typed_config=typed(header)), value_match=value
        )
    )


_HAS_SERVER: Final = _matches(
    "server",
    HttpRequestHeaderMatchInput(header_name=header_names.DESTINATION),
    StringMatcher(safe_regex=RegexMatcher(google_re2=RegexMatcherGoogleRe2(), regex=".+")),
)
"""The picker wrote this header: Envoy removes a client's."""
