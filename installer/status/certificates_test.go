package status

import (
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/serving"
)

// TestWaitsForServing: a kubelet that waits for the approval of its serving certificate is a warning.
func TestWaitsForServing(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	write := func(file, text string) {
		t.Helper()
		if _, err := h.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(want bool) {
		t.Helper()
		found, err := (&Reader{Host: h}).readCertificates(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := false
		for _, w := range found.warnings {
			got = got || strings.Contains(w.Message, "the kubelet has no serving certificate")
		}
		if got != want {
			t.Errorf("warned: %t, want %t: %v", got, want, found.warnings)
		}
	}
	const begin = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	waits(false)
	write(config.KubeletConfigFile, begin)
	waits(false)
	write(config.KubeletConfigFile, begin+"serverTLSBootstrap: true\n")
	waits(true)
	write(config.KubeletPKIDir+"/"+serving.CertificateName, "x")
	waits(false)
}
