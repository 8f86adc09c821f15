"""Tables of kinds whose columns the cloud alone knows."""
