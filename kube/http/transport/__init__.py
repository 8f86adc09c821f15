"""Our own connections to servers: HTTP/2 and HTTP/1.1, the requests that share them, and responses as they come."""
