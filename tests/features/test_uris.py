from urllib.parse import quote, unquote

import pytest

from fx_lsp.features.wording.uris import View, format_uri, parse_uri


def test_a_view_has_a_readable_uri_that_ends_in_the_tab_title():
    view = View("/home/me/model.py", "Block.extra", "forward")
    assert format_uri(view) == "fx-lsp:/home/me/model.py/Block.extra.forward.py"


def test_a_diff_has_its_work_and_the_stage_it_starts_from_in_a_query():
    view = View("/home/me/model.py", "Block", "joint:fold", work="passes&table=core", before="decomposed")
    assert format_uri(view) == "fx-lsp:/home/me/model.py/Block.joint%3Afold.diff?passes&table=core&from=decomposed"
    assert view.title == "Block.joint:fold.diff"


def test_a_compiled_kernel_is_no_python():
    view = View("/home/me/model.py", "Block", "ptx", work="lowered&target=cuda:90")
    assert format_uri(view) == "fx-lsp:/home/me/model.py/Block.ptx.txt?lowered&target=cuda:90"


VIEWS = [
    View("/home/me/model.py", "f", "forward"),
    View("/home/me/my model #2?.py", "Block.extra", "backward"),
    View("/home/mé/模型/100%25.py", "größe", "joint"),
    View("/a\\b/c:d.py", "f", "inference"),
    View(r"C:\Users\me\model.py", "Block", "forward"),
    View(r"\\server\share\model.py", "Block", "forward"),
    View("/home/me/model.py", "f", "joint:remove_noop_ops", work="passes"),
    View("/home/me/model.py", "f", "forward:pass_pattern_0~2", work="passes", before="forward:partition"),
    View("/home/me/model.py", "f", "decomposed", True, "passes&table=torch._decomp.core_aten_decompositions&code"),
    View("/home/me/model.py", "f", "fuse", work="pass=/home/me/my passes #1?.py::Größe.fuse&on=torch", before="torch"),
    View(r"C:\Users\me\model.py", "Block", "forward", work=r"pass=C:\Users\me\p.py::fuse", before="joint"),
    View("/home/me/model.py", "Block.extra", "ptx:extra_kernel", work="lowered&target=hip:gfx942"),
    View("/a/100%25.py", "f", "joint", work="pass=/a/100%25&b=c.py::f", before="50%"),
]


@pytest.mark.parametrize("view", VIEWS)
def test_uris_round_trip(view: View):
    assert parse_uri(format_uri(view)) == view
    assert " " not in format_uri(view)


@pytest.mark.parametrize("view", VIEWS)
def test_editors_may_encode_more_or_add_an_empty_authority(view: View):
    scheme, _, rest = format_uri(view).partition(":")
    place, mark, query = rest.partition("?")
    assert parse_uri(f"{scheme}:{quote(unquote(place), safe='/')}{mark}{quote(unquote(query), safe='')}") == view
    if not rest.startswith("//"):
        assert parse_uri(f"{scheme}://{rest}") == view


@pytest.mark.parametrize(
    "uri",
    [
        *("", "fx-lsp:", "file:///a/f.forward.py", "fx-lsp:/f.forward.py", "fx-lsp:/a/forward.py", "fx-lsp:a/f.x.py"),
        *("fx-lsp:/a.py/f.joint.diff", "fx-lsp:/a.py/f.joint.py?passes&from=torch", "fx-lsp:/a.py/f.joint?passes"),
    ],
)
def test_what_names_no_view(uri: str):
    assert parse_uri(uri) is None
