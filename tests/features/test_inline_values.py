"""What a debugger is asked to show beside the lines of a function."""

from samples import TRACE, F

from fx_lsp.features.inline_values import inline_values


def shown(stopped: int) -> list[tuple[int, str]]:
    return [(value.span.line, value.expression) for value in inline_values(F, TRACE, stopped)]


def test_the_shapes_of_tensors_bound_before_the_line():
    assert shown(stopped=6) == [(4, "x.shape"), (4, "w.shape"), (5, "y.shape")]
    assert shown(stopped=8) == [(4, "x.shape"), (4, "w.shape"), (5, "y.shape"), (7, "y.shape")]


def test_nothing_is_bound_at_the_first_line():
    assert shown(stopped=4) == []


def test_what_is_no_tensor_is_left_to_the_debugger():
    assert "n.shape" not in [expression for _, expression in shown(stopped=8)]
