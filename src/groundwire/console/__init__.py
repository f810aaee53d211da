"""The web console: the review queue for people, as pages and as JSON, over the board and the reviews topic.

It shows and it asks; the reviews agent alone changes what is approved.
"""
