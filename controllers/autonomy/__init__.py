"""The controller that keeps the pods of autonomous nodes where they are while the cloud does not hear these nodes."""
