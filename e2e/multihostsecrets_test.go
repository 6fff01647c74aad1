//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// secrets are what apply must not leave anywhere, and what was seen where it must not be.
type secrets struct {
	mu        sync.Mutex
	tokens    map[string]bool   // ID.SECRET of each bootstrap token that the API had
	encrypted []byte            // one of the certificates that were uploaded: only the right key opens it
	words     map[string]string // what looks like a token or a key, and where it was
}

// suspect is what looks like a bootstrap token or a certificate key.
var suspect = regexp.MustCompile(`\b(?:[a-z0-9]{6}\.[a-z0-9]{16}|[0-9a-f]{64})\b`)

// see notes what looks like a secret in text, and fails if the password is in it.
func (s *secrets) see(t *testing.T, where string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Contains(text, []byte("c4nary")) {
		t.Errorf("the password is in %s", where)
	}
	for _, word := range suspect.FindAll(text, -1) {
		if _, ok := s.words[string(word)]; !ok {
			s.words[string(word)] = where
		}
	}
}

// looks is how often watchProcesses reads a process: a program may replace itself, and soon after its start.
const looks = 20

// watchProcesses reads the arguments and the environment of every process of all hosts, and of this machine, until ctx ends.
func (s *secrets) watchProcesses(ctx context.Context, t *testing.T) {
	looked := map[string]int{}
	for ctx.Err() == nil {
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			if looked[dir]++; looked[dir] > looks {
				continue
			}
			for _, file := range []string{"/cmdline", "/environ"} {
				text, _ := os.ReadFile(dir + file) // the process may have ended
				s.see(t, file+" of "+string(bytes.ReplaceAll(text[:min(len(text), 60)], []byte{0}, []byte{' '})), text)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// watchAPI keeps the bootstrap tokens and the uploaded certificates that the API has in the meantime.
func (s *secrets) watchAPI(ctx context.Context, h *lab.Host) {
	for ctx.Err() == nil {
		if out, err := kubectlTry(ctx, h, "-n", "kube-system", "get", "secrets", "-o", "json"); err == nil {
			s.learn(out)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (s *secrets) learn(list string) {
	var found struct {
		Items []struct {
			Metadata struct{ Name string }
			Data     map[string][]byte
		}
	}
	if json.Unmarshal([]byte(list), &found) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range found.Items {
		switch {
		case strings.HasPrefix(one.Metadata.Name, "bootstrap-token-"):
			s.tokens[string(one.Data["token-id"])+"."+string(one.Data["token-secret"])] = true
		case one.Metadata.Name == "kubeadm-certs":
			s.encrypted = one.Data["ca.crt"]
		}
	}
}

// opens reports whether a key decrypts the uploaded certificates, which are sealed with AES-GCM and begin with the nonce.
func (s *secrets) opens(key string) bool {
	raw, err := hex.DecodeString(key)
	if err != nil || len(s.encrypted) < 12 {
		return false
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return false
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return false
	}
	_, err = gcm.Open(nil, s.encrypted[:12], s.encrypted[12:], nil)
	return err == nil
}

// TestMultiHostSecrets looks for the sudo password, the token and the certificate key in the arguments and environments of all
// processes while apply runs, and afterwards in its output, in the journals and in the files of all hosts.
func TestMultiHostSecrets(t *testing.T) {
	m := newMultihost(t, "e2e-multisecrets", 2, 1)
	first, second, worker := m.nodes[0], m.nodes[1], m.nodes[2]
	ops := ", ssh: {user: " + lab.SSHUser + "}"
	m.describe(t, withBalancer, map[*lab.Host]string{second: ops, worker: ops})
	s := &secrets{tokens: map[string]bool{}, words: map[string]string{}}

	ctx, stop := context.WithCancel(t.Context())
	var watchers sync.WaitGroup
	watchers.Go(func() { s.watchProcesses(ctx, t) })
	watchers.Go(func() { s.watchAPI(ctx, first) })
	out, code := m.typed(t, lab.SSHPassword, site.Installer+" cluster apply --yes")
	stop()
	watchers.Wait()
	t.Logf("exit %d:\n%s", code, out)
	if code != 0 {
		t.FailNow()
	}
	systemIsUp(t, m.Site, len(m.nodes))
	s.see(t, "the output of apply", []byte(out))
	const logs = "/root/.local/state/airlift/logs/" // which the search below reads
	contains(t, out, "The log of this run: "+logs, "Plan: 3 to add, ")
	contains(t, run(t, m.driver, "sh", "-c", "stat -c %a "+logs+"*; cat "+logs+"*"), "600\n", first.Name+": [", " $ /var/lib/airlift/cluster/install join ", "driver: done")
	if len(s.tokens) == 0 || s.encrypted == nil {
		t.Fatalf("%d tokens and %d bytes of a certificate were seen in the API", len(s.tokens), len(s.encrypted))
	}
	for _, h := range m.Hosts {
		// Only what could be a secret leaves the host: the files are large.
		const search = `{ grep -rahoE --exclude-dir=ssh '(\b[a-z0-9]{6}\.[a-z0-9]{16}\b|\b[0-9a-f]{64}\b|c4nary)' /var/lib/airlift /etc /root /home /tmp /var/tmp /run/airlift* /var/log 2>/dev/null
	journalctl --no-pager --output cat | grep -oE '(\b[a-z0-9]{6}\.[a-z0-9]{16}\b|\b[0-9a-f]{64}\b|c4nary)'; } | sort -u`
		s.see(t, "the files and the journal of "+h.Name, []byte(run(t, h, "sh", "-c", search)))
	}
	for word, where := range s.words {
		if s.tokens[word] {
			t.Errorf("a token is in %s", where)
		}
		if s.opens(word) {
			t.Errorf("the certificate key is in %s", where)
		}
	}
	t.Logf("%d words looked like a token or a key", len(s.words))
	eventually(t, 2*time.Minute, func() string { // the token of init lasts a minute
		left := kubectl(t, m.Site, "-n", "kube-system", "get", "secrets", "-o", "name")
		if strings.Contains(left, "bootstrap-token-") || strings.Contains(left, "kubeadm-certs") {
			return "the API still has:\n" + left
		}
		return ""
	})
	// A key that is known is found.
	key := strings.Repeat("5a", 32)
	run(t, first, placedInstaller, "init", "phase", "upload-certs", "--upload-certs", "--certificate-key", key)
	s.learn(kubectl(t, m.Site, "-n", "kube-system", "get", "secrets", "-o", "json"))
	if !s.opens(key) || s.opens(strings.Repeat("5b", 32)) {
		t.Error("the test does not recognize the key of certificates")
	}
}

// placedInstaller is where the driver puts the installer on a host.
const placedInstaller = "/var/lib/airlift/cluster/install"
