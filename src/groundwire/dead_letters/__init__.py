"""Looking dead letters through, and sending them back to where they came from once their cause is mended."""
