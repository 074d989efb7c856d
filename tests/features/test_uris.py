from urllib.parse import quote, unquote

import pytest

from fx_lsp.features.uris import View, format_uri, parse_uri


def test_a_view_has_a_readable_uri_that_ends_in_the_tab_title():
    view = View("/home/me/model.py", "Block.extra", "forward")
    assert format_uri(view) == "fx-lsp:/home/me/model.py/Block.extra.forward.py"


VIEWS = [
    View("/home/me/model.py", "f", "forward"),
    View("/home/me/my model #2?.py", "Block.extra", "backward"),
    View("/home/mé/模型/100%25.py", "größe", "joint"),
    View("/a\\b/c:d.py", "f", "inference"),
    View(r"C:\Users\me\model.py", "Block", "forward"),
    View(r"\\server\share\model.py", "Block", "forward"),
]


@pytest.mark.parametrize("view", VIEWS)
def test_uris_round_trip(view: View):
    assert parse_uri(format_uri(view)) == view
    assert " " not in format_uri(view)


@pytest.mark.parametrize("view", VIEWS)
def test_editors_may_encode_more_or_add_an_empty_authority(view: View):
    scheme, _, rest = format_uri(view).partition(":")
    assert parse_uri(f"{scheme}:{quote(unquote(rest), safe='/')}") == view
    if not rest.startswith("//"):
        assert parse_uri(f"{scheme}://{rest}") == view


@pytest.mark.parametrize(
    "uri", ["", "fx-lsp:", "file:///a/f.forward.py", "fx-lsp:/f.forward.py", "fx-lsp:/a/forward.py", "fx-lsp:a/f.x.py"]
)
def test_what_names_no_view(uri: str):
    assert parse_uri(uri) is None
