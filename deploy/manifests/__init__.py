"""The manifests of deploy/kubernetes put together, and what is generated from them and for them."""
