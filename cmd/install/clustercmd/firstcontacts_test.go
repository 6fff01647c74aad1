package clustercmd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"airlift/bundle"
	"airlift/cmd/output"
	"airlift/installer/multihost/live"
	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/sshhost"
)

// A contact is a host of a cluster.yaml at which the first contact fails, with what is printed about it.
type contact struct {
	name, ssh string
	texts     []string
}

// TestFirstContacts: what sshd, sudo and the network refuse at the first contact is in one table, each host once, with what was refused, by
// whom, what was tried, and a hint that can be typed. It runs against the real sshd, without a terminal.
func TestFirstContacts(t *testing.T) {
	c := newConsole(t)
	// The rig needs the real HOME.
	listen := ""              // two hosts of a cluster.yaml must not have one address
	for i := 2; i < 12; i++ { // sshd listens on 16 addresses at most
		listen += fmt.Sprintf("\nListenAddress 127.0.0.%d", i)
	}
	keys, passwords := sshhost.Start(t, "PasswordAuthentication no\nKbdInteractiveAuthentication no"+listen), sshhost.Start(t, "KbdInteractiveAuthentication no"+listen)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closedPort := closed.Addr().(*net.TCPAddr).Port
	_ = closed.Close()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SSH_AUTH_SOCK", "")
	wrong := c.path("wrong")
	aKey(t, wrong)
	other := aKey(t, c.path("other"))
	known := c.path("known_hosts")
	if err := os.WriteFile(known, []byte(fmt.Sprintf("%s %s\n", knownhosts.Normalize(fmt.Sprintf("localhost:%d", keys.Port)), other)), 0o600); err != nil {
		t.Fatal(err)
	}
	last := 1
	at := func(h *sshhost.Host, more string) string {
		last++
		return fmt.Sprintf("{address: 127.0.0.%d, port: %d, hostKey: %q, %s}", last, h.Port, h.HostKey, more)
	}
	contacts := []contact{
		{"unknown-key", fmt.Sprintf("{address: 127.0.0.1, port: %d}", keys.Port), []string{"the host key is not known: key SHA256:", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub; then set ssh.hostKey in cluster.yaml to SHA256:"}},
		{"changed-key", fmt.Sprintf("{address: localhost, port: %d}", keys.Port), []string{known + ":1 has the key", "ssh-keygen -R '[localhost]:"}},
		{"pinned-key", fmt.Sprintf("{address: 127.0.0.1, port: %d, hostKey: %q}", passwords.Port, other), []string{"hostKey in cluster.yaml is another one", "correct ssh.hostKey in cluster.yaml"}},
		{"refused-key", at(keys, "keyPath: "+wrong), []string{"logging in as root: the host refused the key SHA256:", " of " + wrong, "ssh-copy-id -i " + wrong}},
		{"no-key", at(keys, ""), []string{"logging in as root: there is no key to offer; there is no agent: SSH_AUTH_SOCK is not set"}},
		{"wrong-user", at(keys, "user: nobody-here, keyPath: "+keys.Key), []string{"logging in as nobody-here: the host refused the key SHA256:", "or correct ssh.keyPath or ssh.user in cluster.yaml"}},
		{"password", at(passwords, "user: secret, keyPath: "+wrong), []string{"the host refused the key SHA256:", "; it asks for a password, and there is no terminal, so nobody can be asked"}},
		{"sudo-password", at(keys, "user: secret, keyPath: "+keys.Key), []string{"sudo needs a password: there is no terminal", "secret ALL=(ALL) NOPASSWD: ALL"}},
		{"sudo-rule", at(passwords, "user: stranger, keyPath: "+passwords.Key), []string{"sudo needs a password: there is no terminal"}},
		{"no-shell", at(keys, "user: nologin, keyPath: "+keys.Key), []string{"not available"}},
		{"port-closed", fmt.Sprintf("{address: 127.0.0.1, port: %d}", closedPort), []string{fmt.Sprintf("127.0.0.1:%d: connecting: connection refused", closedPort), "start sshd on the host"}},
		{"no-such-name", "{address: no-such-host.invalid}", []string{"connecting: lookup no-such-host.invalid", "getent hosts no-such-host.invalid"}},
		{"host-down", "{address: 203.0.113.7}", []string{"203.0.113.7:22: "}},
	}
	text := "apiVersion: airlift/v1\nkind: Cluster\nname: site\nendpoint: {address: 192.0.2.1}\nhosts:\n"
	role := "control-plane"
	for i, one := range contacts {
		if i > 2 {
			role = "worker"
		}
		text += fmt.Sprintf("- {name: %s, role: %s, ssh: %s}\n", one.name, role, strings.ReplaceAll(one.ssh, ", }", "}"))
	}
	c.describe(text)
	out := contactAll(t, c, remote.Options{KnownHosts: []string{known}})
	t.Log("\n" + out)
	for _, one := range contacts {
		rows := regexp.MustCompile(`(?m)^`+one.name+` .*\n(?: .*\n)?`).FindAllString(out, -1)
		if len(rows) != 1 {
			t.Errorf("%s is in %d rows", one.name, len(rows))
			continue
		}
		for _, text := range append(one.texts, "cannot be used: ", "hint: ", "--skip "+one.name) {
			if !strings.Contains(rows[0], text) {
				t.Errorf("no %q in\n%s", text, rows[0])
			}
		}
	}
	// On a terminal, an unknown key and a password are asked for, with the reason.
	var asked []string
	c.describe(fmt.Sprintf("apiVersion: airlift/v1\nkind: Cluster\nname: site\nhosts:\n- {name: cp1, role: control-plane, ssh: {address: 127.0.0.1, port: %d, user: secret, keyPath: %s}}\n", passwords.Port, wrong))
	t.Log("\n" + contactAll(t, c, remote.Options{KnownHosts: []string{c.path("new")},
		Ask: func(_ context.Context, question string) (bool, error) {
			asked = append(asked, question)
			return true, nil
		},
		Password: func(_ context.Context, prompt string) (string, error) {
			asked = append(asked, prompt)
			return sshhost.Password, nil
		}}))
	t.Logf("\n%s", strings.Join(asked, "\n\n"))
	if len(asked) != 3 || !strings.Contains(asked[0], "Is it the key of this host?") || !strings.Contains(asked[1], "the host refused the key SHA256:") || !strings.Contains(asked[1], "\nPassword of secret on ") ||
		!strings.HasPrefix(asked[2], "Password of secret for sudo on ") {
		t.Errorf("%q", asked)
	}
}

// contactAll runs cluster preflight with connections by SSH.
func contactAll(t *testing.T, c *console, o remote.Options) string {
	t.Helper()
	cmd := newCommand(&site{
		open: func() (*bundle.File, error) { return bundle.Open(c.file) },
		dial: func(*live.Display) dialer { return remote.NewDialer(o) },
	})
	output.Complete(cmd)
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs([]string{"--file", c.path("cluster.yaml"), "preflight"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	fault.Print(&b, err)
	if code := fault.ExitCode(err); code != fault.Preflight {
		t.Errorf("exit code %d", code)
	}
	return b.String()
}

// aKey writes a private key, and returns its public key.
func aKey(t *testing.T, path string) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err == nil {
		err = os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
	}
	key, keyErr := ssh.NewPublicKey(public)
	if err != nil || keyErr != nil {
		t.Fatal(err, keyErr)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}
