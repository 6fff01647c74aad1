package balancer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/scripts/fixtures/testcluster"
)

// TestMain runs the tests in a network namespace of their own: thousands of connections use up ports that tests of other
// packages choose for their servers.
func TestMain(m *testing.M) {
	const inside = "BALANCER_TEST_NETWORK"
	if os.Getuid() != 0 {
		testcluster.Main(m)
	}
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), inside+"=1"), os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Run(); cmd.ProcessState == nil {
			log.Fatal(err)
		}
		os.Exit(cmd.ProcessState.ExitCode())
	}
	loopback, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(loopback)
	}
	if err != nil {
		log.Fatal(err)
	}
	testcluster.Main(m)
}

// clusterCA is the TLS option for the CA of a real cluster.
func clusterCA(p *testcluster.ControlPlane) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		data, err := os.ReadFile(filepath.Join(p.Config.CertificatesDir, "ca.crt"))
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return nil, errors.New("no certificate")
		}
		return &tls.Config{RootCAs: pool}, nil
	}
}

// A client of the balancer writes and reads while one of two API servers ends in several ways.
func TestRealRequestsSurviveAnAPIServer(t *testing.T) {
	p := testcluster.Start(t)
	stays := netip.MustParseAddrPort(p.Endpoint())
	for name, signal := range map[string]syscall.Signal{"stopped cleanly": syscall.SIGTERM, "killed": syscall.SIGKILL, "hung": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			process, endpoint := p.AnotherAPIServer(t)
			goes := netip.MustParseAddrPort(endpoint)
			// client-go has one connection for each address.
			anyPort := netip.MustParseAddrPort("127.0.0.1:0")
			b := start(t, Options{Listen: slices.Repeat([]netip.AddrPort{anyPort}, 4), Seeds: []netip.AddrPort{stays, goes}, TLS: clusterCA(p)}, nil)
			becomes(t, b, stays, Ready)
			becomes(t, b, goes, Ready)
			var writers []*writer
			for _, address := range b.Status().Listen {
				w := &writer{
					client: testcluster.Must(cluster.Load(p.Super, address.String()))(t),
					end:    make(chan struct{}), ended: make(chan struct{}),
				}
				if err := w.request(); err != nil {
					t.Fatal(err)
				}
				writers = append(writers, w)
			}
			if n := b.Status().of(goes).Connections; n != 2 {
				t.Fatalf("%d connections to one of two API servers", n)
			}
			for _, w := range writers {
				w.start()
			}
			time.Sleep(time.Second)
			if err := process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			becomes(t, b, goes, Down)
			time.Sleep(time.Second)
			for _, w := range writers {
				w.stop()
				t.Logf("%d requests, %d failed, longest gap %s: %v", w.requests, len(w.errs), w.gap.Round(time.Millisecond), w.errs)
				// The one that waited for its answer, and one on a new connection: the kernel closes the sockets of a
				// killed process one by one, and the one that accepts connections may be the last.
				if len(w.errs) > 2 || len(w.errs) == w.requests {
					t.Error("too many requests failed")
				}
			}
			if n := b.Status().of(goes).Connections; n != 0 {
				t.Errorf("%d connections stay", n)
			}
		})
	}
}

// A writer sends one request after the other.
type writer struct {
	client   *cluster.Client
	end      chan struct{}
	ended    chan struct{}
	requests int
	errs     []error
	gap      time.Duration // between two requests that succeeded
}

// request creates an object, without storing it.
func (w *writer) request() error {
	ctx, cancel := context.WithTimeout(context.Background(), patienceOfTests)
	defer cancel()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "writer-"}}
	_, err := w.client.API.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (w *writer) start() {
	go func() {
		defer close(w.ended)
		last := time.Now()
		for {
			select {
			case <-w.end:
				return
			case <-time.After(20 * time.Millisecond):
			}
			w.requests++
			if err := w.request(); err != nil {
				w.errs = append(w.errs, err)
				continue
			}
			w.gap = max(w.gap, time.Since(last))
			last = time.Now()
		}
	}()
}

func (w *writer) stop() {
	close(w.end)
	<-w.ended
}
