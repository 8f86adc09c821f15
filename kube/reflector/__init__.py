"""Keeps a store equal to the cloud: lists, watches, the next server, and the proof that its history goes on."""
