package probe

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/installer/clustertest/diagnosis"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
)

// probed runs the checks of a plan on this machine, and returns the details of those that failed, "" for the others, by Via.
func probed(t *testing.T, ca string, name string, checks ...Check) (map[string]string, *Report) {
	t.Helper()
	var out bytes.Buffer
	plan := Plan{Node: "n1", Nonce: "nonce", IPv4: true, CA: ca, Name: name, Checks: checks}
	if len(checks) > 0 {
		plan.Steady = []Check{checks[0]}
	}
	if err := plan.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	r, err := Read(&out, Report{Node: "n1", Nonce: "nonce"}, []string{"n1", "n2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Covers(plan); err != nil {
		t.Error(err)
	}
	details := map[string]string{}
	for _, o := range r.Observations {
		if o.OK != (o.Detail == "") {
			t.Errorf("%+v", o)
		}
		details[o.Via] = o.Detail
	}
	return details, r
}

// certificateOf is the CA of a test server.
func certificateOf(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// TestRefusedAtFirst: kube-proxy refuses connections to a new Service until it has written its rules.
func TestRefusedAtFirst(t *testing.T) {
	free, err := port.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", free[i]) }
	time.AfterFunc(time.Second, func() {
		l, err := net.Listen("tcp", at(0))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = l.Close() })
	})
	check := func(via, address string) Check {
		return Check{Kind: diagnosis.Service, Via: via, How: "connect", Address: address}
	}
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	details, _ := probed(t, certificateOf(tls), "", check("later", at(0)), check("never", at(1)))
	if details["later"] != "" || details["never"] != "connection refused" {
		t.Errorf("%q", details)
	}
}

// TestAPI: an API server that answers is ready, unless it says that it has failed, or is another one.
func TestAPI(t *testing.T) {
	status := func(code int) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("it is asked for %s", r.URL.Path)
			}
			w.WriteHeader(code)
		}))
		t.Cleanup(s.Close)
		return s
	}
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	ok, refuses, failed := status(200), status(401), status(500)
	check := func(via, address, name string) Check {
		return Check{Kind: diagnosis.API, Via: via, How: "api", Address: address, Name: name}
	}
	gone, err := port.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	details, r := probed(t, certificateOf(ok), "",
		check("ok", ok.Listener.Addr().String(), ""), check("401", refuses.Listener.Addr().String(), ""), check("500", failed.Listener.Addr().String(), ""),
		check("other name", ok.Listener.Addr().String(), "wrong.example"), check("hangs", hangs.Addr().String(), ""), check("gone", fmt.Sprintf("127.0.0.1:%d", gone[0]), ""))
	for via, want := range map[string]string{"ok": "", "401": "", "500": "500", "other name": "wrong.example", "hangs": "no answer", "gone": "connection refused"} {
		if got, ran := details[via]; !ran || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", via, got, want)
		}
	}
	if l := r.Losses[0]; l.Sent < 2 || l.Lost != 0 {
		t.Errorf("%+v", l)
	}
	if _, err := newAPI("no PEM"); err == nil {
		t.Error("a CA that is none is accepted")
	}
}

// TestDNS asks the real CoreDNS.
func TestDNS(t *testing.T) {
	coredns := rig.Component(t, oracle.Version, "coredns")
	ports, err := port.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	corefile := fmt.Sprintf(".:%d {\n bind 127.0.0.1\n hosts {\n  10.96.0.1 kubernetes.default.svc.cluster.local\n  fd00::1 six.default.svc.cluster.local\n }\n}\n", ports[0])
	if err := os.WriteFile(filepath.Join(dir, "Corefile"), []byte(corefile), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), coredns, "-conf", filepath.Join(dir, "Corefile"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal("CoreDNS does not listen")
		}
	}
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	checks := func() (list []Check) {
		for _, how := range []string{"dns-udp", "dns-tcp"} {
			list = append(list, Check{Kind: diagnosis.DNSPod, To: "n2", Via: how, How: how, Address: address},
				Check{Kind: diagnosis.DNSPod, To: "n2", Via: how + " dead", How: how, Address: fmt.Sprintf("127.0.0.1:%d", ports[1])})
		}
		return list
	}
	details, r := probed(t, certificateOf(server), "kubernetes.default.svc.cluster.local.", checks()...)
	if details["dns-udp"] != "" || details["dns-tcp"] != "" || details["dns-udp dead"] != "connection refused" || details["dns-tcp dead"] != "connection refused" {
		t.Errorf("%q", details)
	}
	if l := r.Losses[0]; l.Sent < 1 || l.Lost != 0 {
		t.Errorf("%+v", l)
	}
	for _, is := range []bool{true, false} { // in a cluster with both families, a name that has only IPv6 addresses
		r := &run{Plan: Plan{Name: "six.default.svc.cluster.local.", IPv4: true, IPv6: true, NameIPv6: is}}
		if err := r.dns(t.Context(), "udp", address); (err == nil) != is {
			t.Errorf("%t: %v", is, err)
		}
	}
	details, _ = probed(t, certificateOf(server), "kubernetes.default.svc.wrong.example.", checks()...)
	if !strings.Contains(details["dns-udp"], "wrong.example") || !strings.Contains(details["dns-tcp"], "the DNS server answered") {
		t.Errorf("a name that does not exist: %q", details)
	}
}

// TestClosed: a port that stays open is reported, also if the time ends.
func TestClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if err := (&run{}).closed(ctx, address); err == nil {
		t.Error("the port is reported as closed")
	}
	_ = l.Close()
	if err := (&run{}).closed(t.Context(), address); err != nil {
		t.Error(err)
	}
}

// TestSteadily: what is lost before the first answer is the start, what is lost later counts, and what was interrupted does not.
func TestSteadily(t *testing.T) {
	for _, c := range []struct {
		answers    string // one letter a request: a answer, b lost. The last one is interrupted
		sent, lost int
	}{
		{"bbaaa", 3, 0}, {"aabaa", 5, 1}, {"abba", 4, 2}, {"bbb", 2, 2}, {"ab", 1, 0},
	} {
		n := 0
		ctx, cancel := context.WithCancel(t.Context())
		l := Steadily(ctx, Check{Via: "x"}, func(context.Context) error {
			answer := c.answers[n]
			if n++; n == len(c.answers) {
				cancel()
			}
			if answer == 'b' {
				return errors.New("lost")
			}
			return nil
		})
		if l.Sent != c.sent || l.Lost != c.lost || (l.Error != "") != (c.lost > 0) {
			t.Errorf("%s: %+v, want %d of %d", c.answers, l, c.lost, c.sent)
		}
	}
}
