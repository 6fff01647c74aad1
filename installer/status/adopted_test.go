package status

import (
	"os"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/render"
)

// TestAdoptedKubelet: until the first upgrade, and again after its undo, the kubelet is the one of the tool that made the node.
func TestAdoptedKubelet(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	write := func(path, text string) {
		t.Helper()
		if _, err := h.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	socket := func() string {
		t.Helper()
		s, err := node.RuntimeSocket(h)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	is := func(want string) {
		t.Helper()
		if got := node.KubeletConfigFile(h); got != want || (node.AdoptedKubelet(h) != nil) != (want != config.KubeletConfigFile) {
			t.Errorf("%s, want %s; adopted %+v", got, want, node.AdoptedKubelet(h))
		}
	}
	is(config.KubeletConfigFile)
	const own = "/etc/kubernetes/kubelet-config.yaml"
	a := ledger.Adoption{Maker: "kubespray", Kubernetes: "v1.29.15", Time: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), Notes: []string{"something odd"},
		Kubelet: ledger.AdoptedKubelet{Binary: "/opt/bin/kubelet", Config: own, Args: []string{"--container-runtime-endpoint=unix:///run/its.sock"}}}
	if err := h.Records().Adopt(a); err != nil {
		t.Fatal(err)
	}
	write(config.KubeletFlagsFile, "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/other.sock\"\n") // its unit does not read it
	is(own)
	if got := socket(); got != "/run/its.sock" {
		t.Errorf("socket %s", got)
	}
	for _, before := range []string{"", "[Service]\n# its own\n"} {
		if before != "" {
			if err := h.Remove(render.KubeletDropInPath); err != nil {
				t.Fatal(err)
			}
			write(render.KubeletUnitPath, "x") // the directory exists
		}
		write(render.KubeletDropInPath, render.KubeletDropIn)
		is(config.KubeletConfigFile)
		if got := socket(); got != "/run/other.sock" {
			t.Errorf("socket %s", got)
		}
		if err := h.Remove(render.KubeletDropInPath); err != nil { // undo
			t.Fatal(err)
		}
		is(own)
	}

	// Disown left the files of an upgrade, and the ledger of the next adoption does not list them.
	for _, path := range []string{render.KubeletUnitPath, render.KubeletDropInPath} {
		if err := h.Records().Forget(ledger.File, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, text, want string }{
		{render.KubeletDropInPath, render.KubeletDropIn, own}, // with the unit of another tool
		{render.KubeletUnitPath, render.KubeletUnit, config.KubeletConfigFile},
		{render.KubeletUnitPath, render.KubeletUnit + "# edited\n", own},
		{render.KubeletUnitPath, render.KubeletUnit, config.KubeletConfigFile},
		{render.KubeletDropInPath, "[Service]\n", own},
	} {
		if err := os.WriteFile(h.Path(c.path), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		is(c.want)
	}

	r := &Reader{Host: h, Only: []string{"node"}}
	s, err := r.Read(t.Context())
	if err != nil || s.Node.Adopted == nil || s.Node.Adopted.Maker != "kubespray" || len(s.Node.Adopted.Notes) != 1 {
		t.Fatalf("%+v, %v", s.Node, err)
	}
	var out strings.Builder
	s.Write(&out, 0)
	for _, want := range []string{"reads " + own + " until its first upgrade", "made by kubespray, v1.29.15, adopted 2026-11-27 12:00:00 UTC", "- something odd"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not printed: %q\n%s", want, out.String())
		}
	}
}
