"""The page at `/` on the admin port: one document of the package, fed by server-sent events."""
