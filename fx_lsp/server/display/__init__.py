"""Update the display of the client: diagnostics, views, the benchmark page."""
