package signature_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

// minisign runs the stock minisign command.
func minisign(t *testing.T, input string, args ...string) (output string, err error) {
	t.Helper()
	c := exec.Command(rig.Tool(t, "minisign"), args...)
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	return string(out), err
}

// Keys and signatures of both go both ways: with and without a password.
func TestStockMinisign(t *testing.T) {
	rig.Tool(t, "minisign")
	for name, password := range map[string]string{"no password": "", "password": "correct horse"} {
		t.Run(name, func(t *testing.T) {
			t.Run("our keys", func(t *testing.T) {
				dir := t.TempDir()
				secret, public := filepath.Join(dir, "k.key"), filepath.Join(dir, "k.pub")
				if _, err := signature.WriteKeyPair(secret, public, password); err != nil {
					t.Fatal(err)
				}
				bothSign(t, dir, secret, public, password)
			})
			t.Run("its keys", func(t *testing.T) {
				dir := t.TempDir()
				secret, public := filepath.Join(dir, "k.key"), filepath.Join(dir, "k.pub")
				args := []string{"-G", "-s", secret, "-p", public}
				if password == "" {
					args = append(args, "-W")
				}
				if out, err := minisign(t, password+"\n"+password+"\n", args...); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				bothSign(t, dir, secret, public, password)
			})
		})
	}
}

// bothSign signs a bundle with our code and with minisign, and checks each signature with
// both.
func bothSign(t *testing.T, dir, secret, public, password string) {
	path := writeBundle(t, dir)
	asked := 0
	key, err := signature.ReadSecretKey(secret, func() (string, error) { asked++; return password, nil })
	if err != nil {
		t.Fatal(err)
	}
	if (asked > 0) != (password != "") {
		t.Errorf("the password was asked for %d times", asked)
	}
	if password != "" {
		_, err := signature.ReadSecretKey(secret, func() (string, error) { return "wrong", nil })
		if err == nil || !strings.Contains(err.Error(), "wrong password") || fault.ExitCode(err) != fault.Failure {
			t.Errorf("with a wrong password: %v", err)
		}
	}
	own := func() { signWith(t, path, key) }
	theirs := func() {
		if out, err := minisign(t, password+"\n", "-S", "-s", secret, "-m", path, "-t", "by minisign"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for name, c := range map[string]struct {
		sign    func()
		comment string
	}{"our signature": {own, "kubernetes:v1.29.15"}, "its signature": {theirs, "by minisign"}} {
		c.sign()
		out, err := minisign(t, "", "-V", "-p", public, "-m", path)
		if err != nil || !strings.Contains(out, c.comment) {
			t.Errorf("minisign -V of %s: %v\n%s", name, err, out)
		}
		if got, err := verify(t.Context(), t, path, public); err != nil || !strings.Contains(got, c.comment) {
			t.Errorf("our check of %s: %q, %v", name, got, err)
		}
		// Both refuse the file with one changed bit.
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[20] ^= 1
		write(t, path, b)
		if out, err := minisign(t, "", "-V", "-p", public, "-m", path); err == nil {
			t.Errorf("minisign -V accepts a changed file with %s:\n%s", name, out)
		}
		if _, err := verify(t.Context(), t, path, public); err == nil {
			t.Errorf("a changed file is accepted with %s", name)
		}
		b[20] ^= 1
		write(t, path, b)
	}
	// A legacy signature would need the whole file in memory.
	if out, err := minisign(t, password+"\n", "-S", "-l", "-s", secret, "-m", path); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := verify(t.Context(), t, path, public); err == nil || !strings.Contains(err.Error(), "legacy format") {
		t.Errorf("a legacy signature: %v", err)
	}
}
