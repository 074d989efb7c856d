import pytest

from fx_lsp.features.source.findings import TOLD
from fx_lsp.server.settings import Settings, read_settings, without_more_trust


@pytest.mark.parametrize(
    "raw",
    [
        {"inlayHints": {"enabled": False}},
        {"inlayHints.enabled": False},
        {"fx-lsp": {"inlayHints": {"enabled": False}}},
        {"fx-lsp": {"inlayHints.enabled": False}, "other": {"inlayHints": 1}},
    ],
)
def test_settings_may_be_nested_or_dotted(raw: object):
    assert read_settings(raw, Settings()) == (Settings(inlay_hints=False), ())


def test_null_is_the_default():
    assert read_settings({"limits": {"seconds": None}, "interpreter": ""}, Settings(limits_seconds=3)) == (
        Settings(),
        (),
    )
    assert read_settings(None, Settings(limits_seconds=3)) == (Settings(limits_seconds=3), ())


@pytest.mark.parametrize(
    "raw",
    [
        [],
        "text",
        {"limits": 5},
        {"limits": {"seconds": True}},
        {"limits": {"memory": 0}},
        {"limits": {"memory": float("inf")}},
        {"limits": {"memory": float("nan")}},
        {"limits": {"seconds": 1e300}},
        {"limits": {"seconds": 10**400}},
        {"cache": {"path": 1}},
        {"cache": {"path": "a\0b"}},
        {"interpreter": "\ud800"},
        {"interpreters": [["/a", "b\0"]]},
    ],
)
def test_a_wrong_type_is_one_sentence(raw: object):
    settings, wrong = read_settings(raw, Settings())
    assert settings == Settings()
    assert len(wrong) == 1


def test_what_has_a_wrong_type_stays_what_it_was():
    former = Settings(limits_seconds=3, gpu="cuda:80")
    settings, wrong = read_settings({"limits": {"seconds": -1}}, Settings(), former)
    assert (settings, len(wrong)) == (Settings(limits_seconds=3), 1)


def test_a_choice_is_one_of_its_values():
    assert read_settings({"sizes": "both"}, Settings()) == (Settings(sizes="both"), ())
    assert read_settings({"sizes": "letters"}, Settings()) == (
        Settings(),
        ("fx-lsp.sizes is 'letters', not names, numbers or both",),
    )


def test_interpreters_are_pairs():
    given = {"interpreters": [["/a.b/c", "/env/bin/python"]], "trusted": False}
    settings, wrong = read_settings(given, Settings())
    assert (settings.interpreters, settings.trusted, wrong) == ((("/a.b/c", "/env/bin/python"),), False, ())
    assert read_settings({"interpreters": [["/a"]]}, Settings()) == (
        Settings(),
        ("fx-lsp.interpreters is [['/a']], not a list of pairs of a folder and a path",),
    )


def test_later_settings_take_trust_away_and_give_none():
    assert without_more_trust(Settings(trust="always"), Settings(trust="ask")).trust == "ask"
    assert without_more_trust(Settings(trust="ask"), Settings(trust="always")).trust == "ask"
    assert without_more_trust(Settings(trust="never"), Settings(trust="always")).trust == "never"
    assert without_more_trust(Settings(trusted=True), Settings()).trusted is None
    assert without_more_trust(Settings(trusted=True), Settings(trusted=False)).trusted is True


def test_kinds_of_mistakes_are_switched_one_by_one():
    settings, wrong = read_settings({"problems.copy": True, "problems": {"upcast": False}}, Settings())
    assert settings.problems == (TOLD | {"copy"}) - {"upcast"} and wrong == ()
    again, _ = read_settings({"problems.copy": None, "problems.upcast": None}, settings)
    assert again.problems == TOLD


def test_a_switch_that_is_none_leaves_the_kinds_as_they_are():
    settings, wrong = read_settings({"problems.copy": True, "problems.upcast": "no"}, Settings())
    assert settings.problems == TOLD | {"copy"}
    assert wrong == ("fx-lsp.problems.upcast is 'no', not true or false",)


def test_kinds_of_hints_are_switched_one_by_one():
    settings, wrong = read_settings({"inlayHints": {"ints": False, "strides": True}}, Settings())
    assert settings.hint_kinds == Settings().hint_kinds - {"ints"} and settings.strides and wrong == ()
    again, _ = read_settings({"inlayHints.ints": None}, settings)
    assert again.hint_kinds == Settings().hint_kinds
