//go:build tools

// Package cluster pins the release of Kubernetes whose servers the tests run, with the hashes of all they are built from.
package cluster

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
