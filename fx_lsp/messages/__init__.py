"""Hold the problems that users see, as a table: a code, a severity, a text with named fields, and a fix for each."""
