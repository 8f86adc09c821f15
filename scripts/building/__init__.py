"""What `scripts/image`, `scripts/render` and `scripts/release` build from the sources."""
