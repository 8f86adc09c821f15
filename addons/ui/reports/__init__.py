"""Reports of a hub about itself. One function makes each report, as JSON for tools. Shell, page and consoles render
it."""
