"""What is checked and claimed before the hub opens a port. Mistakes are ValueErrors in the words of the options."""
