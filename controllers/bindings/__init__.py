"""The controller, the webhook and the preview of YurtAppConfigBindings, and the rendering that all three share."""
