"""What the doctor looks at: the node, the cloud, and how a finding is told. Checks change nothing."""
