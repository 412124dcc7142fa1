"""Kubernetes manifests for the live service, checked before they are applied."""
