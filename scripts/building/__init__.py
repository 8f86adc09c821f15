"""Builds of `scripts/image`, `scripts/render` and `scripts/release` from the sources."""
