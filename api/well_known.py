"""The well-known labels of nodes."""

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
RACK = "topology.kubernetes.io/rack"
HOSTNAME = "kubernetes.io/hostname"
