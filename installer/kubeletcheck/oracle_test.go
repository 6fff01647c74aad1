package kubeletcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/scripts/fixtures/rig"
)

const oracleVersion = "v1.29.15"

// A realKubelet runs a kubelet without a cluster and without a container
// runtime, so that the kubelet always exits.
type realKubelet struct {
	t            *testing.T
	kubelet, dir string
}

func newRealKubelet(t *testing.T) *realKubelet {
	t.Helper()
	path := rig.Component(t, oracleVersion, "kubelet")
	w := &realKubelet{t: t, kubelet: path, dir: t.TempDir()}
	w.files()
	return w
}

// base is a configuration that a kubelet without a cluster accepts.
const base = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}%s}
authorization: {mode: AlwaysAllow}
failSwapOn: false
`

// A testCase is one or more lines of the configuration file, and flags.
type testCase struct {
	name    string
	config  string
	flags   []string
	runtime bool // the kubelet checks it only after the runtime has answered
	check   string
	output  string // part of the real kubelet's output
	message string // part of the message of Check
}

// document returns a complete file with the options of a test case. It leaves out top-level
// fields of base that the test case also has.
func (w *realKubelet) document(s testCase, socket string) string {
	text := fmt.Sprintf(base, "")
	if x509, rest, ok := cutLine(s.config, "clientCA: "); ok {
		text = fmt.Sprintf(base, ", x509: {clientCAFile: "+x509+"}")
		s.config = rest
	}
	for _, line := range strings.Split(s.config, "\n") {
		if field, _, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
			text = regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(field)+`:.*\n`).ReplaceAllString(text, "")
		}
	}
	if !strings.Contains(s.config, "containerRuntimeEndpoint") {
		text += "containerRuntimeEndpoint: unix://" + socket + "\n"
	}
	return strings.ReplaceAll(text+s.config+"\n", "DIR", w.dir)
}

func cutLine(s, prefix string) (value, rest string, found bool) {
	var others []string
	for _, line := range strings.Split(s, "\n") {
		if v, ok := strings.CutPrefix(line, prefix); ok {
			value, found = v, true
		} else {
			others = append(others, line)
		}
	}
	return value, strings.Join(others, "\n"), found
}

func (w *realKubelet) input(s testCase, document string) Input {
	in := Input{
		Kubernetes: oracleVersion, Config: []byte(document), Root: os.DirFS("/"),
		CPUs: runtime.NumCPU(), MemoryBytes: 8 << 30, PIDs: 32768,
	}
	for _, f := range s.flags {
		in.Flags = append(in.Flags, ParseFlags([]string{strings.ReplaceAll(f, "DIR", w.dir)})...)
	}
	return in
}

// ask runs the real kubelet and returns its output.
func (w *realKubelet) ask(t *testing.T, s testCase) (input Input, output string) {
	t.Helper()
	dir, err := os.MkdirTemp(w.dir, "run")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "none.sock")
	if s.runtime {
		socket = serveRuntime(t, dir, 1)
	}
	document := w.document(s, socket)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config=" + file, "--root-dir=" + filepath.Join(dir, "root"), "--cert-dir=" + filepath.Join(dir, "pki")}
	for _, f := range s.flags {
		args = append(args, strings.ReplaceAll(f, "DIR", w.dir))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// The kubelet creates directories in /var/lib/kubelet whatever its
	// --root-dir. In a new mount namespace they disappear with the kubelet.
	alone := []string{"--mount"}
	if os.Geteuid() != 0 {
		alone = append(alone, "--map-root-user")
	}
	alone = append(alone, "sh", "-c", `mount -t tmpfs tmpfs /var/lib && exec "$@"`, "sh", w.kubelet)
	out, err := exec.CommandContext(ctx, "unshare", append(alone, args...)...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the kubelet was still running after 20 s:\n%s", out)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return w.input(s, document), string(out)
}

// fewRequestsRuntime is a container runtime that answers few requests for its version.
// The kubelet then checks its other options, and exits before it changes
// anything on the machine.
type fewRequestsRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	answers atomic.Int32
}

func (f *fewRequestsRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	if f.answers.Add(-1) < 0 {
		return nil, errors.New("no further answer")
	}
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "one", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (f *fewRequestsRuntime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	return &cri.ImageFsInfoResponse{}, nil
}

func serveRuntime(t *testing.T, dir string, answers int32) string {
	t.Helper()
	socket := filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, answer := grpc.NewServer(), new(fewRequestsRuntime)
	answer.answers.Store(answers)
	cri.RegisterRuntimeServiceServer(server, answer)
	cri.RegisterImageServiceServer(server, answer)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return socket
}

// files writes the files that test cases refer to.
func (w *realKubelet) files() {
	w.t.Helper()
	for _, pair := range []string{"a", "b"} {
		cmd := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
			"-subj", "/CN="+pair, "-keyout", filepath.Join(w.dir, pair+".key"), "-out", filepath.Join(w.dir, pair+".crt"))
		if out, err := cmd.CombinedOutput(); err != nil {
			w.t.Fatalf("openssl: %v\n%s", err, out)
		}
	}
	for name, text := range map[string]string{
		"text.crt":   "no certificate\n",
		"broken.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

func errorsOf(problems []Problem) (list []Problem) {
	for _, p := range problems {
		if !p.Warning {
			list = append(list, p)
		}
	}
	return list
}

// Check must refuse what the real kubelet refuses, with the name of the option
// and a fix.
func TestRefused(t *testing.T) {
	w := newRealKubelet(t)
	for _, s := range refused {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			input, output := w.ask(t, s)
			i := strings.Index(output, "command failed")
			if i < 0 || !strings.Contains(output[i:], s.output) || strings.Contains(output[i:], "service connection") || strings.Contains(output[i:], "no further answer") {
				t.Fatalf("the real kubelet does not refuse it with %q:\n%s", s.output, tail(output))
			}
			found := errorsOf(Check(input))
			if !slices.ContainsFunc(found, func(p Problem) bool {
				return p.Name == s.check && strings.Contains(p.Message, s.message) && p.Fix != ""
			}) {
				t.Errorf("want %s with %q, got %+v", s.check, s.message, found)
			}
			if len(found) != 1 {
				t.Errorf("%d errors for one wrong option: %+v", len(found), found)
			}
		})
	}
}

// Check must not report what the real kubelet accepts.
func TestAccepted(t *testing.T) {
	w := newRealKubelet(t)
	for _, s := range accepted {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			input, output := w.ask(t, s)
			end := "service connection"
			if s.runtime {
				end = "no further answer"
			}
			if !strings.Contains(output, end) {
				t.Fatalf("the real kubelet does not accept it:\n%s", tail(output))
			}
			if found := Check(input); len(found) > 0 {
				t.Errorf("Check: %+v", found)
			}
		})
	}
}

// Check must warn about what the real kubelet accepts but ignores.
func TestWarned(t *testing.T) {
	w := newRealKubelet(t)
	for _, s := range warned {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.flags = append(s.flags, "--v=5") // so that the kubelet prints its configuration
			input, output := w.ask(t, s)
			if !strings.Contains(output, "service connection") || !strings.Contains(output, s.output) {
				t.Fatalf("the real kubelet does not accept it, or does not print %q:\n%s", s.output, tail(output))
			}
			found := Check(input)
			if len(errorsOf(found)) > 0 || len(found) != 1 || found[0].Name != s.check || !strings.Contains(found[0].Message, s.message) || found[0].Fix == "" {
				t.Errorf("want one warning %s with %q, got %+v", s.check, s.message, found)
			}
		})
	}
}

func tail(s string) string {
	if len(s) > 1500 {
		s = "…" + s[len(s)-1500:]
	}
	return s
}

// The gates and flags that were read from the sources must equal the output of the real kubelet.
func TestHelp(t *testing.T) {
	w := newRealKubelet(t)
	out, err := exec.Command(w.kubelet, "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	var gates, flags []string
	for _, m := range regexp.MustCompile(`(?m)(?:^| )([A-Za-z0-9]+)=true\|false \((ALPHA|BETA) - default=(true|false)\)`).FindAllStringSubmatch(string(out), -1) {
		gates = append(gates, m[1])
		fact, ok := facts()["gate"].at(m[1], 29)
		if !ok || !fact.has(strings.ToLower(m[2])) || fmt.Sprint(fact.has("on")) != m[3] {
			t.Errorf("gate %s is %s, %s; facts.txt has %+v, %v", m[1], m[2], m[3], fact, ok)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ *(?:-\w, )?--([a-z0-9-]+)(?: (\S+))?  `).FindAllStringSubmatch(string(out), -1) {
		flags = append(flags, m[1])
		fact, ok := facts()["flag"].at(m[1], 29)
		if !ok {
			t.Errorf("flag --%s is missing in facts.txt", m[1])
		}
		for shown, kind := range map[string]string{"int32": "int32", "duration": "duration", "ip": "IPVar"} {
			if (m[2] == shown) != fact.has(kind) && m[2] != "Level" {
				t.Errorf("flag --%s is a %q; facts.txt has %q", m[1], m[2], fact.is)
			}
		}
	}
	for name, history := range facts()["flag"] {
		for _, fact := range history {
			if is, _, _ := strings.Cut(fact.is, " "); is != "removed" && types[is].parse == nil {
				t.Errorf("flag --%s is a %q, which types does not have", name, is)
			}
		}
	}
	if len(gates) < 100 || len(flags) < 140 {
		t.Fatalf("read %d gates and %d flags of the help", len(gates), len(flags))
	}
	for name := range facts()["gate"] {
		if fact, ok := facts()["gate"].at(name, 29); ok && (fact.has("alpha") || fact.has("beta")) && !slices.Contains(gates, name) {
			t.Errorf("gate %s is not the real kubelet's", name)
		}
	}
	// These are not in the help. The first two have no effect and are hidden.
	// The third exists only in kubelets with cloud providers.
	hidden := []string{"iptables-drop-bit", "iptables-masquerade-bit", "azure-container-registry-config"}
	for name := range facts()["flag"] {
		if _, ok := facts()["flag"].at(name, 29); ok && !slices.Contains(flags, name) && !slices.Contains(hidden, name) {
			t.Errorf("flag --%s is not the real kubelet's", name)
		}
	}
}
