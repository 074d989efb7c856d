"""Failures of texts: files that do not parse, and written inputs."""

from __future__ import annotations

from fx_lsp.messages.template import FailureTemplate

UNREADABLE_FILE = FailureTemplate("syntax", "the file cannot be read: {error}", severity="error")
TOO_LONG = FailureTemplate(
    "syntax", "the file has {length:,} characters; fx-lsp parses at most {limit:,}", severity="error"
)
SYNTAX_ERROR = FailureTemplate("syntax", "syntax error: {error}", severity="error")
NOT_UNICODE = FailureTemplate(
    "syntax", "the text is not valid Unicode: was the file saved in an encoding other than UTF-8?", severity="error"
)
NESTED_TOO_DEEPLY = FailureTemplate("syntax", "the file is nested too deeply for Python's parser", severity="error")

UNPARSED_COMMENT = FailureTemplate("comment", "cannot parse the `# fx:` comment: {error}", severity="error")
UNPARSED_INPUTS = FailureTemplate("comment", "cannot parse the inputs in {place}: {error}", severity="error")
UNMAKABLE_VALUE = FailureTemplate("comment", "cannot create `{name}`: {error}", severity="error")
UNKNOWN_PARAMETER = FailureTemplate(
    "comment", "{callee} has no parameter `{name}`; its parameters are {parameters}", severity="error"
)
UNKNOWN_PARAMETER_OF_NONE = FailureTemplate(
    "comment", "{callee} has no parameter `{name}`; it takes none", severity="error"
)
MODE_WITHOUT_MODULE = FailureTemplate(
    "comment", "`{mode}()` only applies to modules, and {name} is not in a module", severity="error"
)
