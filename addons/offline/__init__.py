"""What lets the node answer without the cloud: copies on disk, answers from them, the lease. Knows no mitmproxy."""
