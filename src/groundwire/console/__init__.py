"""The web console: the review queue as pages and as JSON; the reviews agent alone changes what is approved."""
