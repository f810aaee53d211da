"""The services that tests run on: embedded by default, real ones where the environment asks for them."""
