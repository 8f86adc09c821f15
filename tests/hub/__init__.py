"""End to end: a real `scripts/hub` process between real clients and a cloud."""
