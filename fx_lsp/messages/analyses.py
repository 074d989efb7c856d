"""Remarks of the pages beside the graphs: graphs built by hand, passes, TorchScript and custom operators."""

from __future__ import annotations

from fx_lsp.messages.template import RemarkTemplate

BROKEN_GRAPH = RemarkTemplate(None, "the graph is broken: {error}", "error")
NODE_NOT_COMPUTED = RemarkTemplate(None, "{node} cannot be computed: {error}", "error")
NOT_SCRIPTED = RemarkTemplate(None, "TorchScript: {reason}")
MATCHED = RemarkTemplate(None, "{label} of {matcher}: {nodes}", "hint")
PASS_RAISED = RemarkTemplate(None, "{code} {event}", "error")
FAKE_KERNEL_DIFFERS = RemarkTemplate(
    None, "the fake kernel of `{operator}` returns {fake}, the operator itself {real}", "warning"
)
