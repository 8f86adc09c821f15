"""Telemetry of the hub: metrics and the log. Imports nothing of ours."""
