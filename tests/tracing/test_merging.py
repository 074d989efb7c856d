"""What was generated, what somebody made of it, and what is generated now, in one text."""

from textwrap import dedent

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from fx_lsp.tracing.kernel_files.merge import Merged, conflicts_in, merge

BASE = """\
def forward_kernel(x_ptr):
    x = tl.load(x_ptr)
    # model.py:6  return x.exp() * 2
    out = tl.exp(x)
    tl.store(out_ptr, out * 2.0)


def backward_kernel(x_ptr):
    x = tl.load(x_ptr)
    # model.py:6  return x.exp() * 2
    grad = tl.exp(x)
    tl.store(grad_ptr, grad * 2.0)
"""


def test_edits_stay_and_the_rest_is_generated_anew():
    edited = BASE.replace("out = tl.exp(x)", "out = tl.exp2(x * 1.4427)")
    assert merge(BASE, edited, BASE.replace("grad * 2.0", "grad * 3.0")) == Merged(
        edited.replace("grad * 2.0", "grad * 3.0"), kept=1
    )


def test_without_edits_it_is_what_is_generated_now():
    generated = BASE.replace("2.0", "3.0")
    assert merge(BASE, BASE, generated) == Merged(generated)


def test_both_on_one_line():
    edited, generated = BASE.replace("out * 2.0", "out + out"), BASE.replace("out * 2.0", "out * 3.0")
    found = merge(BASE, edited, generated)
    assert found.text[: found.text.index("def back")] == snapshot("""\
def forward_kernel(x_ptr):
    x = tl.load(x_ptr)
    # model.py:6  return x.exp() * 2
    out = tl.exp(x)
<<<<<<< edited
    tl.store(out_ptr, out + out)
=======
    tl.store(out_ptr, out * 3.0)
>>>>>>> generated


""")
    assert (found.kept, found.conflicts) == (0, (5,))
    assert conflicts_in(found.text) == (5,)
    assert conflicts_in(found.text.replace("<<<<<<< edited\n", "")) == (8,)
    assert conflicts_in(BASE) == ()


def test_the_same_change_on_both_sides_is_no_edit():
    generated = BASE.replace("2.0", "3.0")
    assert merge(BASE, generated, generated) == Merged(generated)


def test_a_function_that_has_moved_in_its_file_is_in_nobodys_way():
    edited = BASE.replace("    out = tl.exp(x)", "    out = tl.exp2(x)")  # right under the comment that changes
    found = merge(BASE, edited, BASE.replace("model.py:6", "model.py:60"))
    assert found == Merged(edited.replace("model.py:6", "model.py:60"), kept=1)


def test_an_edited_kernel_that_is_no_longer_generated_is_not_lost():
    generated = BASE[: BASE.index("\n\ndef backward")]
    edited = BASE.replace("grad = tl.exp(x)", "grad = tl.exp2(x)")
    found = merge(BASE, edited, generated)
    assert len(found.conflicts) == 1
    assert edited[edited.index("def backward") :] in found.text
    assert merge(BASE, BASE, generated) == Merged(generated)


def test_an_edit_does_not_stray_into_a_kernel_that_is_alike():
    """Its own kernel is gone, and every line around it is in the other one, too."""
    body = "    rows = tl.program_id(0)\n    cols = tl.arange(0, BLOCK)\n    x = tl.load(x_ptr)\n"
    first = f"def first_kernel(x_ptr):\n{body}    out = tl.exp(x)\n    tl.store(out_ptr, out)\n"
    second = f"def second_kernel(x_ptr):\n{body}    y = x + 1\n    out = tl.log(y)\n    tl.store(out_ptr, out)\n"
    generated = second.replace("(x_ptr):", "(x_ptr, N):").replace("x + 1", "x + 2")
    edited = first.replace("tl.load(x_ptr)", "tl.load(x_ptr, other=0.0)")
    found = merge(first + second, edited + second, generated)
    assert edited in found.text and len(found.conflicts) == 1
    assert "other=0.0" not in found.text[found.text.index(">>>>>>>") :]


def test_a_last_line_without_an_end():
    assert merge("a\nb\n", "a\nc", "a\nd\n").text == dedent("""\
        a
        <<<<<<< edited
        c
        =======
        d
        >>>>>>> generated
        """)


TEXTS = st.lists(st.sampled_from("abcdef"), max_size=12).map(lambda lines: "".join(line + "\n" for line in lines))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, TEXTS, TEXTS)
def test_nothing_is_lost(base: str, edited: str, generated: str):
    assert merge(base, edited, base).text == edited
    assert merge(base, base, generated) == Merged(generated)
    assert merge(base, edited, edited) == Merged(edited)
    found = merge(base, edited, generated)
    assert conflicts_in(found.text) == found.conflicts
    new = set(edited.splitlines()) - set(base.splitlines())
    assert new <= set(found.text.splitlines())
