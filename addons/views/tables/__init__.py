"""Tables of kinds whose columns only the cloud knows."""
