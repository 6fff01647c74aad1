package backup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"airlift/installer/backup"
	"airlift/internal/fault"
)

func TestFilesThatAreNoAgeKeys(t *testing.T) {
	secret, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	public := secret.Recipient().String()
	for name, c := range map[string]struct{ content, recipients, identities string }{
		"secret key": {"# created\n" + secret.String() + "\n", "age-keygen -y", ""},
		"public key": {public + "\n", "", "--identity needs the file with the secret key"},
		"encrypted":  {"age-encryption.org/v1\n-> scrypt", "age --decrypt", "age --decrypt"},
		"armored":    {"-----BEGIN AGE ENCRYPTED FILE-----\n", "age --decrypt", "age --decrypt"},
		"SSH":        {"ssh-ed25519 AAAA me\n", "age-keygen -o", "age-keygen -o"},
		"PEM":        {"-----BEGIN CERTIFICATE-----\n", "age-keygen -o", "age-keygen -o"},
		"UTF-16":     {"\xff\xfea\x00g\x00", "iconv", "iconv"},
		"empty":      {"", "age-keygen -o", "age-keygen -o"},
	} {
		path := filepath.Join(t.TempDir(), "key.txt")
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, asRecipients := backup.Recipients(nil, []string{path})
		_, asIdentities := backup.Identities([]string{path})
		for want, err := range map[string]error{c.recipients: asRecipients, c.identities: asIdentities} {
			if (want == "") != (err == nil) || !strings.Contains(fault.Hint(err), want) || err != nil && strings.Contains(err.Error(), secret.String()) {
				t.Errorf("%s: %v (hint %q), want %q", name, err, fault.Hint(err), want)
			}
		}
	}
	// A secret key in place of a public one is not printed.
	if _, _, err := backup.Recipients([]string{secret.String()}, nil); err == nil || strings.Contains(err.Error()+fault.Hint(err), secret.String()) || !strings.Contains(fault.Hint(err), "age-keygen -y") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}

// TestRecipientsFromAPipe: a file that can be read only once is used with the lines that were
// checked.
func TestRecipientsFromAPipe(t *testing.T) {
	secret, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	public := secret.Recipient().String()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("# mine\n" + public); err != nil {
		t.Fatal(err)
	}
	w.Close()
	list, lines, err := backup.Recipients([]string{public}, []string{fmt.Sprintf("/proc/self/fd/%d", r.Fd())})
	if err != nil || len(list) != 2 || lines != public+"\n# mine\n"+public+"\n" {
		t.Errorf("%d recipients, %q, %v", len(list), lines, err)
	}
}
