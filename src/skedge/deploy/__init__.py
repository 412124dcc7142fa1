"""What a Kubernetes cluster needs to run the live service: manifests, checked before they are applied."""
