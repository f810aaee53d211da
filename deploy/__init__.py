"""What Groundwire runs on: services for the demo and the tests, and what production is deployed with."""
