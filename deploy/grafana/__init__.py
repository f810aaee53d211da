"""Grafana: what it is provisioned with, and the panels from which its dashboard is made."""
