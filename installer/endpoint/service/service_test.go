package service

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/endpoint/balancer"
	"airlift/installer/pki"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// patience is for what takes moments, also on a loaded machine.
const patience = time.Minute

var quiet = slog.New(slog.DiscardHandler)

// write writes a file, and removes it at the end of the test.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
}

// configure writes the settings of this host, with the directories that systemd creates.
func configure(t *testing.T, s endpoint.Settings) {
	t.Helper()
	rig.Root(t)
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	write(t, endpoint.SettingsPath, string(files[0].Data))
	if err := os.MkdirAll(filepath.Dir(endpoint.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
}

// start runs the service until the test, or a call of the returned function, ends it.
func start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, quiet) }()
	stop = func() {
		cancel()
		select {
		case err := <-done:
			done <- nil
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("Run does not end")
		}
	}
	t.Cleanup(stop)
	query(t, func(*State) bool { return true })
	return stop
}

// query waits until the state of the service is as it should be.
func query(t *testing.T, is func(*State) bool) *State {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		s, err := Query(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s != nil && is(s) {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("the state is %+v", s)
		}
	}
}

// apiServer runs an API server. It returns its address and a directory with its CA.
func apiServer(t *testing.T) (address, certificates string) {
	t.Helper()
	certificates = t.TempDir()
	cfg := testhost.Config(func(c *config.Config) {
		c.CertificatesDir, c.LocalAPIEndpoint.AdvertiseAddress = certificates, "127.0.0.1"
	})
	made, err := pki.Ensure(cfg, os.DirFS("/"), time.Now(), "ca", "apiserver")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Files {
		write(t, f.Path, string(f.Data))
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(certificates, "apiserver.crt"), filepath.Join(certificates, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	api.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	api.StartTLS()
	t.Cleanup(api.Close)
	return api.Listener.Addr().String(), certificates
}

// ready reports whether the balancer has the addresses, and all are ready.
func ready(s *State, addresses ...string) bool {
	return len(s.Balancer.Backends) == len(addresses) && !slices.ContainsFunc(s.Balancer.Backends, func(b balancer.BackendStatus) bool {
		return b.State != balancer.Ready || !slices.Contains(addresses, b.Address.String())
	})
}

func TestBalancer(t *testing.T) {
	address, certificates := apiServer(t)
	configure(t, endpoint.Settings{Balancer: "127.0.0.1:0", ControlPlanes: []string{address}, CertificatesDir: certificates})
	stop := start(t)
	s := query(t, func(s *State) bool { return ready(s, address) })
	if s.VIP != nil {
		t.Errorf("it has a virtual address: %+v", s.VIP)
	}
	conn, err := net.DialTimeout("tcp", s.Balancer.Listen[0].String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := Handover(t.Context()); err != nil {
		t.Errorf("without a virtual address: %v", err)
	}
	if err := Run(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), "listening for requests of this host") {
		t.Errorf("a second service: %v", err)
	}
	stop()
	if s, err := Query(t.Context()); s != nil || err != nil {
		t.Errorf("after the end: %+v, %v", s, err)
	}
}

// The API servers of the last run are used, also if the file was damaged.
func TestStateFile(t *testing.T) {
	address, certificates := apiServer(t)
	configure(t, endpoint.Settings{Balancer: "127.0.0.1:0", CertificatesDir: certificates})
	at := netip.MustParseAddrPort(address)
	if err := os.MkdirAll(filepath.Dir(endpoint.StateFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := save([]netip.AddrPort{at}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(endpoint.StateFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"as it was saved": string(good),
		"damaged":         "\x00\x00\n10.1.2\n" + string(good) + "[fd00::1:6443",
		"no last newline": strings.TrimSuffix(string(good), "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			write(t, endpoint.StateFile, text)
			start(t)
			query(t, func(s *State) bool { return ready(s, address) })
		})
	}
	t.Run("a directory", func(t *testing.T) {
		if err := os.MkdirAll(endpoint.StateFile, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(endpoint.StateFile) })
		start(t)
		if s := query(t, func(*State) bool { return true }); len(s.Balancer.Backends) != 0 {
			t.Errorf("%+v", s.Balancer)
		}
	})
}

// A control plane without its etcd does not take the address, and gives none away.
func TestVIPWithoutEtcd(t *testing.T) {
	address, certificates := apiServer(t)
	configure(t, endpoint.Settings{VIPs: []netip.Addr{netip.MustParseAddr("10.99.0.100")}, APIServer: address, CertificatesDir: certificates})
	start(t)
	s := query(t, func(s *State) bool { return s.VIP != nil && s.VIP.Interface == "eth0" })
	if s.VIP.Held || s.Balancer != nil || s.VIP.Reason == "" {
		t.Errorf("%+v", s)
	}
	if err := Handover(t.Context()); err != nil {
		t.Errorf("handover: %v", err)
	}
}

// systemd is notified when the service is ready, and then again and again.
func TestNotify(t *testing.T) {
	_, certificates := apiServer(t)
	configure(t, endpoint.Settings{Balancer: "127.0.0.1:0", CertificatesDir: certificates})
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	start(t)
	if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"READY=1", "WATCHDOG=1"} {
		buffer := make([]byte, 100)
		n, err := l.Read(buffer)
		if is := string(buffer[:n]); err != nil || is != want {
			t.Errorf("%q, %v, want %q", is, err, want)
		}
	}
}

// TestSettingsThatCannotBeUsed: the error names the file, and its hint says which command writes it.
func TestSettingsThatCannotBeUsed(t *testing.T) {
	rig.Root(t)
	if err := Run(t.Context(), quiet); fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), endpoint.SettingsPath) || !strings.Contains(fault.Hint(err), "--control-plane-balancer") {
		t.Errorf("no file: %v, hint %q", err, fault.Hint(err))
	}
	const head = "apiVersion: airlift/v1\nkind: NodeEndpoint\n"
	for name, text := range map[string]string{
		"empty":                    "",
		"cut":                      head + "vips: [10.99.",
		"another kind":             "apiVersion: airlift/v1\nkind: Endpoint\n",
		"no port of the balancer":  head + "balancer: 127.0.0.1\n",
		"a name of the API server": head + "vips: [10.99.0.100]\napiServer: k8s.example.org:6443\n",
	} {
		t.Run(name, func(t *testing.T) {
			write(t, endpoint.SettingsPath, text)
			err := Run(t.Context(), quiet)
			if err == nil || !strings.Contains(err.Error(), "reading "+endpoint.SettingsPath) || !strings.Contains(fault.Hint(err), "./install endpoint node") {
				t.Errorf("%v, hint %q", err, fault.Hint(err))
			}
		})
	}
}

// TestNoService: a host without the service is no error.
func TestNoService(t *testing.T) {
	rig.Root(t)
	check := func(name string) {
		t.Helper()
		if s, err := Query(t.Context()); s != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if err := Handover(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	check("no socket")
	l := listen(t)
	l.SetUnlinkOnClose(false)
	l.Close()
	check("a socket of a process that was killed")
}

// listen listens at the service's socket.
func listen(t *testing.T) *net.UnixListener {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(endpoint.Socket), 0o700), os.RemoveAll(endpoint.Socket)); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: endpoint.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); os.Remove(endpoint.Socket) })
	return l
}

// TestAnswers: a service that cannot hand over is an error, and one that needs not is none.
func TestAnswers(t *testing.T) {
	rig.Root(t)
	for name, c := range map[string]struct {
		answer          http.HandlerFunc
		query, handover string // the errors
	}{
		"it works":   {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }, "", ""},
		"no peer":    {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no peer", http.StatusConflict) }, "asking the endpoint's service", ""},
		"it fails":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, "asking the endpoint's service", "giving the virtual address to another control plane: 500"},
		"it crashes": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "asking the endpoint's service", "asking the endpoint's service"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &http.Server{Handler: c.answer}
			go server.Serve(listen(t))
			t.Cleanup(func() { server.Close() })
			_, err := Query(t.Context())
			if c.query == "" && err != nil || c.query != "" && (err == nil || !strings.Contains(err.Error(), c.query)) {
				t.Errorf("query: %v", err)
			}
			err = Handover(t.Context())
			if c.handover == "" && err != nil || c.handover != "" && (err == nil || !strings.Contains(err.Error(), c.handover)) {
				t.Errorf("handover: %v", err)
			}
		})
	}
}
