"""Lists and watches answered on the node: sources, the views of them, and the answers from both."""
