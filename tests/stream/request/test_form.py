"""Claims about extproc/stream/request/form.py: the fields of a form, wherever its files stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.stream.request.body import CUT, RequestBody
from extproc.stream.request.form import NO_FORM, read_form

TYPE = "multipart/form-data; boundary=row--boat"
FILE = (
    b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\n" + b"RIFF\r\n--row\r\n\r\n\x00\xff" * 9000
)


def field(name: str, value: str) -> bytes:
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode()


def form(*parts: bytes, delimiter: bytes = b"--row--boat") -> bytes:
    return b"".join(delimiter + b"\r\n" + part + b"\r\n" for part in parts) + delimiter + b"--\r\n"


MODEL = field("model", "whisper-1")


@pytest.mark.parametrize(
    "parts", [(MODEL, FILE), (FILE, MODEL), (field("language", "en"), FILE, MODEL, FILE)]
)
def test_the_model_before_and_behind_a_file(parts: tuple[bytes, ...]) -> None:
    assert read_form(form(*parts), TYPE, is_whole=True) == RequestBody(model="whisper-1")


@pytest.mark.parametrize(
    "content_type",
    [
        'multipart/form-data; boundary="row--boat"',
        "multipart/form-data; charset=utf-8; BOUNDARY=row--boat; x=y",
        "Multipart/Form-Data;boundary=row--boat",
    ],
)
def test_spellings_of_the_boundary(content_type: str) -> None:
    assert read_form(form(MODEL), content_type, is_whole=True).model == "whisper-1"


@pytest.mark.parametrize(
    ("part", "model"),
    [
        (b"content-disposition:form-data;name=model\r\n\r\nbeta", "beta"),
        (b'Content-Type: text/plain\r\nContent-Disposition: form-data; name="model"\r\n\r\nb', "b"),
        (field("model", ""), None),
        (field("model", "a b/ü:c"), "a b/ü:c"),
        (field("models", "beta"), None),
        (b'Content-Disposition: form-data; name="model"; filename="m"\r\n\r\nbeta', None),
    ],
)
def test_spellings_of_a_field(part: bytes, model: str | None) -> None:
    """A file that is named `model` is no model, as servers read it."""
    found = read_form(form(part, FILE), TYPE, is_whole=True)
    assert (found.model, found.unread) == (model, None)


def test_the_bound_is_text() -> None:
    assert read_form(form(field("max_tokens", "17")), TYPE, is_whole=True).max_tokens == 17
    for odd in ("x", "", "-1", "0", "²"):
        assert read_form(form(field("max_tokens", odd)), TYPE, is_whole=True).max_tokens is None


def test_a_cut_form_may_hide_its_model() -> None:
    """Unless the field came first."""
    whole = form(FILE, MODEL)
    assert read_form(whole[:-60], TYPE, is_whole=False) == RequestBody(unread=CUT)
    first = form(MODEL, FILE)
    assert read_form(first[:9000], TYPE, is_whole=False).model == "whisper-1"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(MODEL), "multipart/form-data"),
        (form(MODEL), "multipart/form-data; boundary=other"),
        (form(MODEL)[:-6], TYPE),
        (b"", TYPE),
        (b'{"model":"beta"}', TYPE),
        (form(*[field(f"f{number}", "x") for number in range(99)], MODEL), TYPE),
    ],
)
def test_what_is_no_form_hides_its_model(body: bytes, content_type: str) -> None:
    found = read_form(body, content_type, is_whole=True)
    assert (found.problem, found.unread) == (NO_FORM, NO_FORM)


def test_a_name_of_a_megabyte_is_not_read() -> None:
    for chars in (600, 1_000_000):
        found = read_form(form(field("model", "x" * chars)), TYPE, is_whole=True)
        assert found.model is None and "more than 512 characters" in str(found.unread)


@given(st.binary(max_size=300), st.booleans(), st.text(max_size=40))
def test_any_bytes(noise: bytes, is_whole: bool, parameters: str) -> None:
    for body in (noise, form(noise, MODEL), form(MODEL)[:40] + noise):
        read_form(body, TYPE, is_whole=is_whole)
        read_form(body, f"multipart/form-data; {parameters}", is_whole=is_whole)
