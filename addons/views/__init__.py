"""Lists and watches that the node answers itself: sources, their views, and the answers that views give."""
