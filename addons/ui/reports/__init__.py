"""Reports of a hub about itself. One function makes each report as a JSON value; shell, page and consoles format it."""
