package uninstall

import (
	"strings"
	"testing"
)

func TestIsShim(t *testing.T) {
	for line, want := range map[string]bool{
		"/usr/local/bin/containerd-shim-runc-v2 -namespace k8s.io -id x -address /run/containerd/containerd.sock": true,
		"/usr/bin/containerd-shim-runc-v2 -namespace moby -id x":                                                  false,
		"vi containerd-shim -namespace k8s.io":                                                                    false,
		"":                                                                                                        false,
	} {
		if got := isShim([]byte(strings.ReplaceAll(line, " ", "\x00"))); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}
