//go:build e2e

package e2e

// kubeletCases are settings with which the kubelet would not start.
func kubeletCases() []preflightCase { return nil }
