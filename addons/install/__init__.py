"""Installs, upgrades, checks and removes the hub on a node. No module imports mitmproxy."""
