"""Telemetry of the hub: metrics and the log. Imports no other package of the hub."""
