package target

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"pgregory.net/rapid"

	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/sftphost"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]string{
		"s3://backups":                               "s3://backups",
		"s3://backups/":                              "s3://backups",
		"s3://backups/plant-7/etcd/":                 "s3://backups/plant-7/etcd",
		"sftp://backup@nas.site.example/srv/k8s/":    "sftp://backup@nas.site.example/srv/k8s",
		"sftp://backup@nas:22/srv":                   "sftp://backup@nas/srv",
		"sftp://backup@[fd00::7]:2222/volume1/plant": "sftp://backup@[fd00::7]:2222/volume1/plant",
		"sftp://a.b@10.0.0.9/~/x":                    "sftp://a.b@10.0.0.9/~/x",
	} {
		if a, err := ParseURL(text); err != nil || a.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, a, err, want)
		}
	}
	for _, text := range []string{"s3://", "s3://B", "s3://key@backups/x", "s3://backups/../x", "s3://backups/a//b", "s3://backups/a%20b", "s3://backups/$x", "s3://backups?versions",
		"s3://backups/x#y", "http://minio:9000/backups", "ftp://x/y", "sftp://nas/srv", "sftp://u@nas", "sftp://u@nas/", "sftp://u@nas:0/x", "sftp://u@nas:x/x", "sftp://u:p@nas/x",
		"sftp://-oProxyCommand=x@nas/x", "sftp://u@nas/a b", "sftp://u@nas/a\nb", "sftp://u@-nas/x", "sftp://u@[fe80::1%25eth0]/x", "://"} {
		if a, err := ParseURL(text); err == nil || fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
			t.Errorf("%q: %+v, %v (hint %q)", text, a, err, fault.Hint(err))
		}
	}
	if _, err := ParseURL("sftp://u:geheim@nas/x"); strings.Contains(err.Error()+fault.Hint(err), "geheim") {
		t.Errorf("the error has the password: %v", err)
	}
}

// TestURLOfAnAddress: a URL that is accepted is one word of a systemd unit, and its text means the same.
func TestURLOfAnAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"s3://", "sftp://u@", "sftp://", ""}).Draw(t, "scheme") + rapid.StringMatching(`[a-z0-9.:@\[\]-]{0,12}(/[ -~]{0,12}){0,3}`).Draw(t, "rest")
		a, err := ParseURL(text)
		if err != nil {
			return
		}
		if again, err := ParseURL(a.String()); err != nil || again != a {
			t.Fatalf("%q: %+v, %+v, %v", text, a, again, err)
		}
		if strings.ContainsAny(a.String(), " %$\"\\'\n\t;`&|<>") || !IsURL(a.String()) {
			t.Fatalf("%q", a)
		}
	})
}

const secret = "kanarienvogel/4711+geheim"

func s3Config(more ...string) string {
	return strings.Join(append([]string{"apiVersion: airlift/v1", "kind: BackupTarget", "s3:", "  endpoint: https://s3.site.example:9000", "  accessKey: me", "  secretKey: " + secret}, more...), "\n") + "\n"
}

func TestParse(t *testing.T) {
	bucket, dir := Address{Scheme: S3, Bucket: "backups"}, Address{Scheme: SFTP, User: "u", Host: "nas", Port: 22, Path: "/x"}
	key, public := sftphost.NewKey(t)
	sftpText := "apiVersion: airlift/v1\nkind: BackupTarget\nsftp:\n  hostKey: " + public + "  privateKey: |\n    " + strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n    ") + "\n"
	if c, err := Parse("f", []byte(s3Config("  region: eu", "  pathStyle: false")), bucket); err != nil || c.S3.SecretKey != secret || *c.S3.PathStyle {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := Parse("f", []byte(sftpText), dir); err != nil || c.SFTP.PrivateKey != strings.TrimSpace(key)+"\n" {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		s3Config("  sekretKey: x"):                                      "s3.sekretKey is not known",
		s3Config("  ca: x"):                                             "s3.ca is not a certificate",
		s3Config("sftp: {hostKey: x}"):                                  "another kind",
		strings.Replace(s3Config(), "https", "ftp", 1):                  "s3.endpoint is not",
		strings.Replace(s3Config(), ":9000", "/bucket", 1):              "s3.endpoint is not",
		strings.Replace(s3Config(), "  accessKey: me\n", "", 1):         "no s3.accessKey",
		strings.Replace(s3Config(), "kind: BackupTarget\n", "", 1):      "no kind",
		strings.Replace(s3Config(), secret, "["+secret+"]", 1):          "s3.secretKey",
		strings.Replace(s3Config(), secret, "*"+secret, 1):              "not YAML",
		s3Config("---", "apiVersion: airlift/v1", "kind: BackupTarget"): "one document",
		"": "one document",
		strings.Replace(sftpText, "privateKey", "password", 1):                               "",
		strings.Replace(sftpText, "hostKey: ", "hostKey: x", 1):                              "sftp.hostKey is not a host key",
		strings.Replace(sftpText, "BEGIN OPENSSH", "BEGIN MY", 1):                            "sftp.privateKey is not a private key",
		"apiVersion: airlift/v1\nkind: BackupTarget\nsftp: {hostKey: '" + public[:50] + "'}": "sftp.",
	} {
		a := bucket
		if strings.Contains(text, "sftp:") && !strings.Contains(text, "s3:") {
			a = dir
		}
		_, err := Parse("f", []byte(text), a)
		switch {
		case want == "" && err == nil:
		case err == nil || fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want %q", text, err, want)
		case strings.Contains(err.Error()+fault.Hint(err), "kanarienvogel"):
			t.Errorf("the error has the secret: %v (%s)", err, fault.Hint(err))
		}
	}
}

// TestErrorsHaveNoSecrets: whatever is wrong with a file.
func TestErrorsHaveNoSecrets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := s3Config()
		for range rapid.IntRange(1, 3).Draw(t, "edits") {
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			text = text[:at] + rapid.StringMatching(`[-:*&!#|>'"{}\[\]%,?a \n\t]{1,3}`).Draw(t, "insert") + text[at:]
		}
		if !strings.Contains(text, secret) {
			return
		}
		_, err := Parse("f", []byte(text), Address{Scheme: S3, Bucket: "backups"})
		if err != nil && strings.Contains(err.Error()+fault.Hint(err), "kanarienvogel") && !strings.Contains(err.Error(), "is not known") {
			t.Fatalf("%q: %v (%s)", text, err, fault.Hint(err))
		}
	})
}

// TestLoad: only the owner may read the file.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "target.yaml")
	if err := os.WriteFile(file, []byte(s3Config()), 0o600); err != nil {
		t.Fatal(err)
	}
	a := Address{Scheme: S3, Bucket: "backups"}
	if _, err := Load(file, a); err != nil {
		t.Error(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file, a); err == nil || !strings.Contains(err.Error(), "other users") || !strings.Contains(fault.Hint(err), "chmod 600") {
			t.Errorf("%o: %v (%s)", mode, err, fault.Hint(err))
		}
	}
	for _, path := range []string{"", filepath.Dir(file), file + "x", "/dev/null"} {
		if _, err := Load(path, a); err == nil || fault.ExitCode(err) != fault.Usage || strings.Contains(fault.Hint(err), "chmod") || fault.Hint(err) == "" {
			t.Errorf("%q: %v (%s)", path, err, fault.Hint(err))
		}
	}
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = stdin }()
	if c, err := Load(Stdin, a); err != nil || string(c.Data()) != s3Config() {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestTypesOfHostKeys: a certificate of a host, and a key of a type that no connection can use, are not accepted.
func TestTypesOfHostKeys(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate := &ssh.Certificate{Key: key, CertType: ssh.HostCert, ValidBefore: ssh.CertTimeInfinity}
	if err := certificate.SignCert(rand.Reader, signer); err != nil {
		t.Fatal(err)
	}
	for want, key := range map[bool]ssh.PublicKey{true: key, false: certificate} {
		c := &SFTPConfig{HostKey: string(ssh.MarshalAuthorizedKey(key))}
		if _, _, err := c.Pin(); (err == nil) != want {
			t.Errorf("%s: %v", key.Type(), err)
		}
	}
}
