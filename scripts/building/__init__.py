"""Builds the products of `scripts/image`, `scripts/render` and `scripts/release` from the sources."""
