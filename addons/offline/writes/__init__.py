"""Writes that the hub accepts while the cloud is away, and the journal that replays them when the cloud is back."""
