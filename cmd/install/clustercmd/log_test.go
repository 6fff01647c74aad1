package clustercmd

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
)

// logs returns the names and the text of all logs.
func (c *console) logs() (names []string, text string) {
	c.t.Helper()
	dir := c.path("state/airlift/logs")
	entries, err := os.ReadDir(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil || info.Mode().Perm() != 0o600 {
			c.t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			c.t.Fatal(err)
		}
		names, text = append(names, filepath.Join(dir, e.Name())), text+string(data)
	}
	return names, text
}

// The log has each command on each host, the plan and the end of a run, also of one that fails or is interrupted, and its path is
// printed. A command that changes nothing leaves none. Old logs are removed.
func TestLog(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "plan")
	if _, err := os.Stat(c.path("state")); err == nil {
		t.Error("plan left a log")
	}
	c.w.Seen, c.w.Fails["w1"] = nil, "join"
	failed := c.want(1, nil, "", "apply", "--yes")
	c.w.Fails = map[string]string{}
	ctx, cancel := context.WithCancel(t.Context())
	c.ctx = ctx
	c.w.Kill = func(int) int {
		if strings.Contains(c.w.Seen[len(c.w.Seen)-1], "/install join ") {
			cancel()
		}
		return 0
	}
	interrupted := c.want(fault.Interrupted, nil, "", "apply", "--yes")
	c.ctx, c.w.Kill = t.Context(), nil
	done := c.want(0, []string{"The cluster matches the file."}, "", "apply", "--yes")
	names, text := c.logs()
	if len(names) != 3 {
		t.Fatalf("%q", names)
	}
	for i, out := range []string{failed, interrupted, done} {
		if strings.Count(out, "The log of this run: "+names[i]+"\n") != 1 {
			t.Errorf("no %s in\n%s", names[i], out)
		}
	}
	unquoted := strings.NewReplacer("'", "", "\\", "", "\n", "; ").Replace
	ran := map[string]int{} // of the log
	for _, m := range regexp.MustCompile(`(?m)^\S+ \S+: \[\d+\] (?:\$ (.*?)(?: <\(.*\))?|copying .* to (\S+))$`).FindAllStringSubmatch(text, -1) {
		ran[unquoted(m[1]+m[2])]++
	}
	for _, args := range c.w.Seen {
		if ran[unquoted(strings.TrimPrefix(args, "send "))]--; ran[unquoted(strings.TrimPrefix(args, "send "))] < 0 {
			t.Errorf("%q is not in the log", args)
		}
	}
	for _, want := range []string{"w1: join\n", "driver: Plan: 5 to add, ", "driver: error: w1: ", "driver: done\n", " cp1: connecting to 10.0.0.10 port 22 as root\n", "driver: cluster apply --file=", " --yes=true\n", "copying "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for range keptLogs + 2 {
		c.want(0, nil, "", "apply", "--yes")
	}
	if kept, _ := c.logs(); len(kept) != keptLogs || slices.Contains(kept, names[0]) {
		t.Errorf("%q", kept)
	}
}

// A conn prints what the test has drawn.
type printing struct {
	remote.Conn
	parts [][]byte
}

func (p printing) Run(_ context.Context, c remote.Command) error {
	for _, part := range p.parts {
		if n, err := c.Stdout.Write(part); n != len(part) || err != nil {
			return err
		}
	}
	return nil
}

// Whatever a command prints, and in whichever parts, its reader gets it unchanged, and no line of the log has a secret: of a command
// whose output may be one, nothing is recorded but progress, and from all others what has the form of a secret is taken out.
func TestLogHasNoSecrets(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	forms := []string{"abcdef.0123456789abcdef", strings.Repeat("0123456789abcdef", 4), "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",
		"MIIEpAIBAAKCAQEA" + strings.Repeat("x", 40)}
	rapid.Check(t, func(t *rapid.T) {
		l, err := openLog("site", "apply", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(l.path)
		secret := rapid.SampledFrom(append(forms, "no form at all")).Draw(t, "secret")
		args := rapid.SampledFrom([][]string{{"/x/install", "cluster", "host", "credentials"}, {"cat", "/etc/kubernetes/admin.conf"}, {"/x/install", "cluster", "host", "facts"}, {"/x/install", "init", "--progress", "json"}}).Draw(t, "command")
		line := map[string]string{forms[1]: "certificateKey: " + secret, forms[4]: "-----BEGIN RSA PRIVATE KEY-----\n" + secret + "\n-----END RSA PRIVATE KEY-----"}[secret]
		if line == "" {
			line = rapid.SampledFrom([]string{"token: ", "{\"a\":\"", ""}).Draw(t, "before") + secret
		}
		if isShown(args) && secret == "no form at all" {
			return // its owner knows that its output is none
		}
		text := strings.Repeat("first\n", rapid.IntRange(0, 3).Draw(t, "lines")) + line + "\n" + `{"event":"step","step":"kubelet","number":1,"of":2}` + "\nlast"
		var parts [][]byte
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		var out bytes.Buffer
		if err := (&loggedConn{printing{parts: parts}, "cp1", l}).Run(context.Background(), remote.Command{Args: args, Stdout: &out, Stdin: strings.NewReader(secret)}); err != nil || out.String() != text {
			t.Fatalf("%v: %q, want %q", err, out.String(), text)
		}
		data, err := os.ReadFile(l.path)
		if err != nil || bytes.Contains(data, []byte(secret)) || !bytes.Contains(data, []byte("[1/2] kubelet")) {
			t.Fatalf("%v:\n%s", err, data)
		}
	})
}
