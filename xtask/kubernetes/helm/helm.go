//go:build tools

// Package helm pins the release of Helm that the tests render and lint the chart with, and the hashes of all it is built from.
package helm

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
