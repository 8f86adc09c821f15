"""How the hub comes onto a node and leaves it: doctor, install, uninstall, upgrade. No module imports mitmproxy."""
