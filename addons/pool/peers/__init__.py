"""The other hubs from which this hub requests something: their health, their last answers, their probes, and the choice
among them."""
