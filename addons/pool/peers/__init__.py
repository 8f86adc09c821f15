"""The other hubs that this one asks: each one's health and last answer, their probes, and the choice among them."""
