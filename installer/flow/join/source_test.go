package join

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/preflight"
	"airlift/installer/workflow"
	"airlift/internal/dialer"
	"airlift/internal/fault"
)

// thinWorker returns the join of a worker from a thin file.
func thinWorker(t *testing.T, endpoint string) *nodeJoin {
	t.Helper()
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	hex := fmt.Sprintf("%x", sha256.Sum256(noise))
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.37.1", CNI: "none",
		Entries: []bundle.Entry{{Name: bundle.FileName(hex), Size: int64(len(noise)), SHA256: hex}},
		Files:   []bundle.SiteFile{{Path: "/etc/noise", Mode: "0644", Entry: bundle.FileName(hex)}}}
	dir := t.TempDir()
	d, err := bundle.WriteDraft(t.Context(), filepath.Join(dir, "install"), bundle.Executables{Launcher: []byte("launcher"), Installer: []byte("installer")}, m, bundle.Fastest,
		func(bundle.Entry) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(noise)), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Discard()
	f, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := bundle.WriteThin(t.Context(), f, filepath.Join(dir, "thin")); err != nil {
		t.Fatal(err)
	}
	thin, err := bundle.Open(filepath.Join(dir, "thin"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { thin.Close() })
	b, err := payload.OpenBundle(thin)
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{Discovery: config.Discovery{APIServerEndpoint: endpoint}}
	return newNodeJoin(&phases.Plan{Role: phases.JoiningRole(cfg), Bundle: b, Config: cfg}, node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)}))
}

// Preflight of a worker does not know the cluster's CA: it only finds out whether a control plane answers at the port.
func TestPreflightOfAThinFile(t *testing.T) {
	ready := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a credential was sent to an unverified server")
		}
		if r.URL.Path != "/readyz" {
			http.NotFound(w, r)
		}
	}))
	defer ready.Close()
	network := func(open bool) context.Context {
		return dialer.With(t.Context(), func(ctx context.Context, network, address string) (net.Conn, error) {
			if !open || address != "[2001:db8::1]:7444" {
				return nil, errors.New("connection refused")
			}
			return new(net.Dialer).DialContext(ctx, network, ready.Listener.Addr().String())
		})
	}
	j := thinWorker(t, "[2001:db8::1]:6443")
	if report, err := j.addSource(network(true), preflight.NewReport(), nil); err != nil || len(report.Errors) > 0 {
		t.Errorf("it answers: %+v, %v", report, err)
	}
	// It may be a load balancer for the API servers alone: then join finds the control planes in the cluster.
	report, err := j.addSource(network(false), preflight.NewReport(), nil)
	if err != nil || len(report.Errors) != 0 || len(report.Warnings) != 1 || report.Warnings[0].Name != "BundleSource" ||
		!strings.Contains(report.Warnings[0].Message, "nothing serves the rest at [2001:db8::1]:7444") || !strings.Contains(report.Warnings[0].Fix, "registry enable") {
		t.Errorf("it does not answer: %+v, %v", report, err)
	}
	// It hides no other problem of the host.
	other := preflight.NewReport()
	other.Add(preflight.Problem{Name: "Swap", Message: "swap is on"}, false, nil)
	report, err = j.addSource(network(false), other, other.Err("checking this host"))
	if len(report.Errors) != 1 || len(report.Warnings) != 1 || !strings.Contains(err.Error(), "[ERROR Swap]") {
		t.Errorf("with another problem: %+v, %v", report, err)
	}
	damaged := fault.New(fault.Bundle, "damaged")
	if _, err = j.addSource(network(false), preflight.NewReport(), damaged); fault.ExitCode(err) != fault.Bundle {
		t.Errorf("with a damaged file: %v", err)
	}
	// The address is not given.
	if err := thinWorker(t, "").checkSource(network(false)); err != nil {
		t.Errorf("without an address: %v", err)
	}
}

// A phase that needs the rest of the file, without a source, changes nothing.
func TestPhasesNeedASource(t *testing.T) {
	j := thinWorker(t, "192.0.2.1:6443")
	for name, err := range map[string]error{
		"unpack": j.content.Unpack(t.Context(), desired.List{}),
		"images": j.content.WaitImages(t.Context()),
	} {
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "is a thin file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if j.Host.Records().Used() {
		t.Error("the host was changed")
	}
}
