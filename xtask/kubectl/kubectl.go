//go:build tools

// Package kubectl pins the release of kubectl that the tests run, with the hashes of all it is built from.
package kubectl

import _ "k8s.io/kubernetes/cmd/kubectl"
