"""The dashboard's pages: HTML, style and script in one response, which requests data only from this
picker.

The Content-Security-Policy names style and script by their hashes and forbids all else, so
that a name which somebody gave a server or a model can never become markup or code.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One HTML document and the headers to send with it."""

    html: str
    headers: Mapping[str, str]


def dashboard(links: Mapping[str, str] | None = None) -> Page:
    """The dashboard, with `links`: web addresses by name."""
    return page("dashboard", links)


def page(name: str, links: Mapping[str, str] | None = None, gateway: str = "") -> Page:
    """Put a page together from the files of this name beside this module, in the dashboard's
    style. It may also ask a `gateway`, an origin such as `http://127.0.0.1:10000`."""
    here = files("extproc.status")
    style = (here / "dashboard.css").read_text(encoding="utf-8")
    if (own := here / f"{name}.css").is_file() and name != "dashboard":
        style += own.read_text(encoding="utf-8")
    script = (here / f"{name}.js").read_text(encoding="utf-8")
    html = (here / f"{name}.html").read_text(encoding="utf-8")
    policy = (
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(script)}'",
        "img-src data:",  # the icon
        f"connect-src 'self' {gateway}".rstrip(),
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return Page(
        html=html.replace("{{links}}", _anchors(links or {}))
        .replace("{{gateway}}", escape(gateway))
        .replace("{{style}}", style)
        .replace("{{script}}", script),
        headers={
            "content-security-policy": "; ".join(policy),
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        },
    )


def _anchors(links: Mapping[str, str]) -> str:
    return "".join(
        f'<a href="{escape(url)}" rel="noreferrer">{escape(name)}</a>'
        for name, url in links.items()
    )


def _digest(text: str) -> str:
    """How a policy names an inline style or script."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
