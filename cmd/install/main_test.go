package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// If this variable is set, the test binary runs the real main. So the tests see
// its exit codes, standard output and standard error.
const asMain = "AIRLIFT_TEST_AS_INSTALL"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

func install(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr []string
	}{
		{"help", nil, 0, "Exit codes:", nil},
		{"init help names kubeadm's flags", []string{"init", "--help"}, 0, "--apiserver-cert-extra-sans", nil},
		{"unknown command", []string{"frobnicate"}, 2, "", []string{`"frobnicate"`, "hint: "}},
		{"unknown flag", []string{"init", "--frobnicate"}, 2, "", []string{"--frobnicate", "hint: see '", " init --help'"}},
		{"bad flag value", []string{"init", "--token-ttl", "soon"}, 2, "", []string{"soon", "hint: "}},
		{"argument to init", []string{"init", "now"}, 2, "", []string{`"now"`}},
		{"two addresses to join", []string{"join", "a:1", "b:1"}, 2, "", []string{"one address"}},
		{"a mirror without a URL", []string{"init", "--registry-mirror", "docker.io"}, 2, "", []string{`"docker.io"`, "hint: "}},
		{"a CA that is missing, for join", []string{"join", "192.0.2.1:6443", "--registry-ca", "docker.io=/nonexistent/ca.pem"}, 2, "", []string{"/nonexistent/ca.pem", "hint: "}},
		{"credentials that are missing, for preflight", []string{"preflight", "init", "--registry-auth", "/nonexistent/auth"}, 2, "", []string{"/nonexistent/auth", "hint: "}},
		{"mirrors without a registry", []string{"registry", "mirrors"}, 2, "", []string{"no flag with a registry", "hint: ", "--off"}},
		{"mirrors and none", []string{"registry", "mirrors", "--off", "--registry-mirror", "docker.io=https://m.example"}, 2, "", []string{"--off cannot be together", "hint: "}},
		{"a mirror with a password", []string{"registry", "mirrors", "--registry-mirror", "docker.io=https://u:p@m.example"}, 2, "", []string{"a user name or a password", "--registry-auth FILE"}},
		{"mirrors on a host that is no node", []string{"registry", "mirrors", "--off"}, 3, "", []string{"not a node of a cluster", "hint: "}},
		{"a mirror before the payload", []string{"init", "--registry-mirror", "docker.io=https://m.example", "--registry-mirror", "quay.io=https://m.example"}, 4, "", []string{"without a payload"}},
		{"no payload", []string{"init"}, 4, "", []string{"without a payload", "hint: "}},
		{"no payload for join", []string{"join", "192.0.2.1:6443"}, 4, "", []string{"without a payload"}},
		{"timeline in no directory", []string{"init", "--timeline", "/nonexistent/init.json"}, 2, "", []string{`"/nonexistent/init.json"`, "hint: "}},
		{"timeline on a device", []string{"init", "--timeline", "/dev/null"}, 2, "", []string{`"/dev/null"`, "hint: "}},
		{"timeline on a directory", []string{"join", "a:1", "--timeline", "/tmp"}, 2, "", []string{`"/tmp"`, "hint: "}},
		{"timeline among manifests", []string{"init", "phase", "addon", "coredns", "--print-manifest", "--timeline", "-"}, 2, "", []string{"--print-manifest", "hint: "}},
		{"malformed token", []string{"token", "create", "ABC"}, 2, "", []string{"malformed", "hint: "}},
		{"negative ttl", []string{"token", "create", "--ttl", "-1h"}, 2, "", []string{"negative"}},
		{"token delete without a token", []string{"token", "delete"}, 2, "", []string{"requires a token"}},
		{"no such kubeconfig", []string{"token", "list", "--kubeconfig", "/nonexistent/admin.conf"}, 1, "", []string{"/nonexistent/admin.conf", "hint: "}},
		{"version without a payload", []string{"version"}, 4, "airlift ", []string{"without a payload"}},
		{"an archive of no known format", []string{"doctor", "x.zip"}, 2, "", []string{`"x.zip"`, "hint: "}},
		{"an archive in no directory", []string{"doctor", "/nonexistent/x.tar.gz"}, 2, "", []string{"/nonexistent/x.tar.gz", "hint: "}},
		{"two archives", []string{"doctor", "a.tar.gz", "b.tar.gz"}, 2, "", []string{"one file", "hint: "}},
		{"logs of no namespace", []string{"doctor", "--logs-of", "a/b"}, 2, "", []string{`--logs-of "a/b"`, "hint: "}},
		{"an archive of nothing", []string{"doctor", "--max-size", "0"}, 2, "", []string{"--max-size", "hint: "}},
		{"completion", []string{"completion", "bash"}, 0, "bash completion", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, code := install(t, tt.args...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, tt.code, stdout, stderr)
			}
			if !strings.Contains(stdout, tt.stdout) {
				t.Errorf("standard output does not say %q:\n%s", tt.stdout, stdout)
			}
			for _, want := range tt.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error does not say %q:\n%s", want, stderr)
				}
			}
			if tt.code != 0 && !strings.HasPrefix(stderr, "error: ") {
				t.Errorf("standard error does not begin with error: %q", stderr)
			}
		})
	}
}

func TestGeneratedTokensDiffer(t *testing.T) {
	a, _, _ := install(t, "token", "generate")
	b, _, _ := install(t, "token", "generate")
	if len(strings.TrimSpace(a)) != len("abcdef.0123456789abcdef") || a == b {
		t.Errorf("tokens %q and %q", a, b)
	}
}
