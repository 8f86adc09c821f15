"""Tests of the manager: its controllers, webhooks and manifests."""
