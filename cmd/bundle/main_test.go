package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"airlift/images/release"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// With the variable set, the test binary is the real main, which the tests run as users do.
func TestMain(m *testing.M) {
	if os.Getenv("BUNDLE_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

type shell struct {
	t   *testing.T
	dir string // working directory and home
}

func newShell(t *testing.T) shell {
	t.Helper()
	s := shell{t, t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.dir, "stub"), fakesites.Executable(t, elf.EM_X86_64), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s shell) command(args ...string) *exec.Cmd {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Dir = s.dir
	c.Env = append(os.Environ(), "BUNDLE_TEST_MAIN=1", "HOME="+s.dir, "XDG_CACHE_HOME="+filepath.Join(s.dir, "cache"))
	return c
}

func (s shell) run(args ...string) (stdout, stderr string, code fault.Code) {
	s.t.Helper()
	var out, errs bytes.Buffer
	c := s.command(args...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), fault.Code(c.ProcessState.ExitCode())
}

func buildArgs(u *fakesites.Upstream, more ...string) []string {
	args := []string{"build", "--version", "v1.29", "--arch", "amd64", "--launcher", "stub", "--installer", "stub", "--compression", "fastest"}
	for _, m := range u.Mirrors() {
		args = append(args, "--mirror", m)
	}
	return append(args, more...)
}

func TestBuildInspectVerify(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	out, errs, code := s.run(buildArgs(u)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	b, err := os.ReadFile(filepath.Join(s.dir, "install"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"├─ binaries ", "├─ kubelet v1.29.15 ", "registry.k8s.io/etcd:3.5.16-0 ", "cni-plugins",
		fmt.Sprintf("%d bytes", len(b)), fmt.Sprintf("%x", sha256.Sum256(b)),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the result lacks %q:\n%s", want, out)
		}
	}
	for _, want := range []string{"newest release of v1.29: v1.29.15", "kubelet v1.29.15", "downloaded, sha256 verified", "registry.k8s.io/pause:3.9", "verified"} {
		if !strings.Contains(errs, want) {
			t.Errorf("progress lacks %q:\n%s", want, errs)
		}
	}
	if strings.ContainsAny(errs+out, "\r\x1b") {
		t.Errorf("a bar was drawn where there is no terminal:\n%q", errs)
	}
	if strings.Contains(errs, "docker.io") != true {
		t.Errorf("the mirror that was not needed is not mentioned:\n%s", errs)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "cache", "airlift", "bundle", "sha256")); err != nil {
		t.Errorf("the cache is not in the user's cache directory: %v", err)
	}
	if out, errs, code := s.run("inspect", "install"); code != 0 || !strings.Contains(out, "kubelet") {
		t.Errorf("inspect: %d, %s%s", code, out, errs)
	}
	if _, errs, code := s.run("verify", "install"); code != 0 {
		t.Errorf("verify: %d, %s", code, errs)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(filepath.Join(s.dir, "damaged"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := s.run("verify", "damaged"); code != fault.Bundle || !strings.HasPrefix(lastLines(errs, 2), "error: ") {
		t.Errorf("verify of a damaged file: %d, %s", code, errs)
	}
}

// Without --version, the newest minor version of the catalog is built. No other version is
// built instead if its release is not there.
func TestBuildWithoutVersion(t *testing.T) {
	newest := release.NewestOf("stable")
	minor := newest[:strings.LastIndex(newest, ".")]
	u := fakesites.New(t, newest, "v1.29.15")
	s := newShell(t)
	args := []string{"build", "--arch", "amd64", "--launcher", "stub", "--installer", "stub", "--compression", "fastest"}
	for _, m := range u.Mirrors() {
		args = append(args, "--mirror", m)
	}
	out, errs, code := s.run(args...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if want := "newest known minor version is built: " + minor + "\n"; !strings.Contains(errs, want) {
		t.Errorf("%q is not in\n%s", want, errs)
	}
	if want := "newest release of " + minor + ": " + newest; !strings.Contains(errs, want) {
		t.Errorf("%q is not in\n%s", want, errs)
	}
	if !regexp.MustCompile(`(?m)^kubernetes +` + regexp.QuoteMeta(newest) + `$`).MatchString(out) {
		t.Errorf("the summary has no line for %s:\n%s", newest, out)
	}
	if out, errs, _ := s.run("inspect", "install"); !strings.Contains(out, "Kubernetes "+newest+" ") {
		t.Errorf("inspect: %s%s", out, errs)
	}

	channel := "dl.k8s.io/release/stable-" + minor[1:] + ".txt"
	u.Remove(channel)
	if err := os.Remove(filepath.Join(s.dir, "install")); err != nil {
		t.Fatal(err)
	}
	_, errs, code = s.run(args...)
	if code != fault.Failure || !strings.Contains(errs, channel) || !strings.Contains(errs, "--version "+newest) {
		t.Errorf("without a release of %s: exit code %d\n%s", minor, code, errs)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "install")); err == nil {
		t.Errorf("another version was built:\n%s", errs)
	}
	if out, _, _ := s.run("build", "--help"); !strings.Contains(out, `(default "`+minor+`")`) {
		t.Errorf("the help does not name the default:\n%s", out)
	}
}

// A version that is newer than the known ones: the build, inspect and the provenance tell what
// was assumed.
func TestNewerVersions(t *testing.T) {
	u := fakesites.New(t, "v1.29.15", "v1.29.99")
	given := release.Versions{Etcd: "3.8.1-0", CoreDNS: "v1.15.0", Pause: "3.11"}
	u.Release("v1.38.2", given)
	s := newShell(t)
	for version, c := range map[string]struct {
		flags   []string
		warning string
		has     []string
	}{
		"v1.29.99": {
			warning: "warning: Kubernetes v1.29.99 is newer than v1.29.15, the newest known patch of v1.29: components without a given version are assumed to be as in v1.29.15\n" +
				"warning: assumed as in v1.29.15: etcd 3.5.16-0, coredns v1.11.1, pause 3.9, crictl v1.28.0\n",
			has: []string{"etcd:3.5.16-0", "kube-apiserver:v1.29.99"},
		},
		"v1.38": {
			flags: []string{"--etcd-version", given.Etcd, "--coredns-version", given.CoreDNS, "--pause-version", given.Pause},
			warning: "warning: Kubernetes v1.38.2 is newer than v1.37, the newest known minor version: the rules of v1.37 apply to its configuration, feature gates and kubelet\n" +
				"warning: assumed as in " + release.NewestOf("stable") + ": crictl v1.36.0\n",
			has: []string{"etcd:3.8.1-0", "coredns:v1.15.0", "pause:3.11", "kube-apiserver:v1.38.2"},
		},
	} {
		args := append(buildArgs(u, c.flags...), "--version", version)
		if _, errs, code := s.run(args...); code != 0 || !strings.Contains(errs, c.warning) {
			t.Fatalf("%s: exit code %d, want\n%s\nin\n%s", version, code, c.warning, errs)
		}
		warning, _, _ := strings.Cut(strings.TrimPrefix(c.warning, "warning: "), "\n")
		out, _, _ := s.run("inspect", "install")
		for _, want := range append(c.has, warning) {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", version, want, out)
			}
		}
		if _, errs, code := s.run("verify", "install"); code != 0 {
			t.Errorf("%s: verify: %d\n%s", version, code, errs)
		}
		out, errs, code := s.run(append([]string{"images", "--arch", "amd64", "--version", strings.Replace(version, "v1.38", "v1.38.2", 1)}, c.flags...)...)
		if code != 0 || errs != c.warning || !strings.Contains(out, c.has[0]+"\n") {
			t.Errorf("images of %s: %d\n%s%s", version, code, out, errs)
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.SplitAfter(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

func TestUsageErrors(t *testing.T) {
	s := newShell(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"build", "--version", "", "--arch", "amd64", "--launcher", "stub", "--installer", "stub"}, `"" is not a Kubernetes version`},
		{[]string{"build", "--version", "v1.28", "--launcher", "stub", "--installer", "stub"}, "v1.29, v1.30"},
		{[]string{"build", "--version", "v1.29", "--arch", "riscv64", "--launcher", "stub", "--installer", "stub"}, "amd64, arm64"},
		{[]string{"build", "--version", "v1.29.15", "--arch", "amd64", "--cni", "calico", "--launcher", "stub", "--installer", "stub"}, "flannel, none"},
		{[]string{"build", "--version", "v1.29.15", "--arch", "amd64", "--image", "Not An Image", "--launcher", "stub", "--installer", "stub"}, "Not An Image"},
		{[]string{"build", "--version", "v1.29", "--mirror", "dl.k8s.io"}, "HOST=URL"},
		{[]string{"build", "--version", "v1.29", "--arch", "arm64", "--launcher", "stub", "--installer", "stub"}, "EM_X86_64"},
		{[]string{"build", "--version", "v1.29", "--arch", "amd64", "--launcher", "stub", "--installer", "none"}, "none"},
		{[]string{"build", "--version", "v1.29", "--arch", "amd64", "--launcher", "stub", "--installer", "stub", "--output", "."}, "is a directory"},
		{[]string{"build", "--version", "v1.29", "--arch", "amd64", "--launcher", "stub", "--installer", "stub", "--output", "no/such/install"}, "no/such"},
		{[]string{"build", "--version", "v1.29", "--compression", "most"}, "fastest, default, best"},
		{[]string{"build", "--version", "v1.38.0", "--arch", "amd64", "--launcher", "stub", "--installer", "stub"}, "--etcd-version 3.7.0-0 --coredns-version"},
		{[]string{"build", "--version", "v1.38", "--arch", "amd64", "--launcher", "stub", "--installer", "stub", "--etcd-version", "3.7.0-0"}, "needs --coredns-version, --pause-version"},
		{[]string{"build", "--version", "v1.29.15", "--etcd-version", "3.5.17-0", "--arch", "amd64", "--launcher", "stub", "--installer", "stub"}, "remove --etcd-version"},
		{[]string{"build", "--version", "v1.29", "--pause-version", "v3.9", "--arch", "amd64", "--launcher", "stub", "--installer", "stub"}, "--pause-version 3.9"},
		{[]string{"build", "extra"}, "extra"},
		{[]string{"build", "--nonsense"}, "--nonsense"},
		{[]string{"inspect"}, "--help"},
		{[]string{"nonsense"}, "nonsense"},
		{[]string{"images", "--version", "v1.29"}, "full version"},
		{[]string{"images", "--version", "v1.38.0"}, "needs --etcd-version"},
	} {
		out, errs, code := s.run(c.args...)
		if code != fault.Usage || !strings.Contains(errs, c.want) || !strings.HasPrefix(errs, "error: ") || out != "" {
			t.Errorf("%v: exit code %d\n%s%s", c.args, code, out, errs)
		}
	}
}

func TestHelpHasTheExitCodes(t *testing.T) {
	out, _, code := newShell(t).run("--help")
	if code != 0 || !strings.Contains(out, "130 interrupted") || !strings.Contains(out, "4 the bundle is missing") {
		t.Errorf("%d\n%s", code, out)
	}
}

func TestImagesAndVersion(t *testing.T) {
	s := newShell(t)
	if out, _, code := s.run("images", "--version", "v1.29.0", "--arch", "arm64"); code != 0 || !strings.Contains(out, "registry.k8s.io/etcd:3.5.10-0\n") || !strings.Contains(out, "linux/arm64/kubelet\n") {
		t.Errorf("%d\n%s", code, out)
	}
	if out, _, code := s.run("version"); code != 0 || !strings.Contains(out, "v1.29 to v1.37") {
		t.Errorf("%d\n%s", code, out)
	}
	if out, _, code := s.run("completion", "bash"); code != 0 || !strings.Contains(out, "bash completion") {
		t.Errorf("completion: %d\n%s", code, out)
	}
}

// Ctrl-C or a lost session during a download leaves no output and prints how to continue, and
// the next run continues.
func TestInterrupt(t *testing.T) {
	for s, message := range map[syscall.Signal]string{
		syscall.SIGINT:  "error: interrupted\nhint: ",
		syscall.SIGTERM: "error: interrupted by SIGTERM\nhint: ",
		syscall.SIGHUP:  "error: interrupted by SIGHUP: the session or the terminal was closed\nhint: ",
	} {
		t.Run(s.String(), func(t *testing.T) { testInterrupt(t, s, message) })
	}
}

func testInterrupt(t *testing.T, interruption syscall.Signal, message string) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	began := make(chan struct{})
	u.Answer = func(w http.ResponseWriter, r *http.Request, target string) bool {
		if target != "cdn.dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet" {
			return false
		}
		w.Header().Set("Content-Length", "100000")
		w.Write(u.Get(strings.TrimPrefix(target, "cdn."))[:5000])
		w.(http.Flusher).Flush()
		close(began)
		<-r.Context().Done()
		return true
	}
	// Tests may run under nohup; a handled signal is not ignored in a child process.
	signal.Notify(make(chan os.Signal, 1), interruption)
	c := s.command(buildArgs(u)...)
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := c.Process.Signal(interruption); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if code := c.ProcessState.ExitCode(); code != int(fault.Interrupted) || !strings.Contains(errs.String(), message) {
		t.Errorf("exit code %d\n%s", code, errs.String())
	}
	left, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() != "stub" && e.Name() != "cache" {
			t.Errorf("%s was left behind", e.Name())
		}
	}
	u.Answer = nil
	if _, errs, code := s.run(buildArgs(u)...); code != 0 {
		t.Errorf("the next run: %d\n%s", code, errs)
	}
}

func TestErrorsNameFileSumsAndURL(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	const file = "github.com/opencontainers/runc/releases/download/v1.5.2/runc.amd64"
	sum := strings.Fields(string(u.Get(strings.TrimSuffix(file, "runc.amd64") + "runc.sha256sum")))[0]
	u.Put(file, []byte("tampered"))
	_, errs, code := s.run(buildArgs(u)...)
	for _, want := range []string{"error: ", "runc v1.5.2", "https://" + file, sum, fmt.Sprintf("%x", sha256.Sum256([]byte("tampered")))} {
		if !strings.Contains(errs, want) {
			t.Errorf("the message lacks %q:\n%s", want, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "install")); code != fault.Failure || err == nil {
		t.Errorf("exit code %d, a file was written: %v", code, err == nil)
	}
}
