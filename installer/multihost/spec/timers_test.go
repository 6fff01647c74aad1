package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	backuptarget "airlift/installer/backup/target"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// TestBackupTarget: the credentials of a target are checked on the driver's machine, and are not in the digest of the file.
func TestBackupTarget(t *testing.T) {
	const secret = "kanarienvogel/4711"
	config := "apiVersion: airlift/v1\nkind: BackupTarget\ns3: {endpoint: 'https://s3.site.example', accessKey: me, secretKey: '" + secret + "'}\n"
	text := spec.Example() + "backups:\n  target: s3://backups/plant-7/\n  targetConfig: target.yaml\n  recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]\n"
	path := directory(t, text)
	file := filepath.Join(filepath.Dir(path), "target.yaml")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		_ = os.Remove(file)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(config, 0o600)
	c, err := spec.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Backups; b.Target != "s3://backups/plant-7" || b.Config != file || b.Directory != "" || b.Digest != backuptarget.Digest(b.Target, []byte(config)) {
		t.Errorf("%+v", b)
	}
	if _, err := spec.Read(directoryWith(t, strings.Replace(text, "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", "", -1), config)); err == nil || !strings.Contains(err.Error(), "backups has no recipients") {
		t.Errorf("%v, want an error about recipients", err)
	}
	write(strings.Replace(config, secret, "other", 1), 0o600)
	if other, err := spec.Read(path); err != nil || other.Digest != c.Digest || other.Backups.Digest == c.Backups.Digest {
		t.Errorf("%+v, %v", other, err)
	}
	for want, change := range map[string]func(){
		"other users can read":       func() { write(config, 0o644) },
		"s3.secretKy is not known":   func() { write(strings.Replace(config, "secretKey", "secretKy", 1), 0o600) },
		"no such file":               func() { _ = os.Remove(file) },
		"fields of another kind":     func() { write(strings.Replace(config, "s3:", "sftp: {hostKey: x}\ns3:", 1), 0o600) },
		"the file has no kind":       func() { write(strings.Replace(config, "kind: BackupTarget\n", "", 1), 0o600) },
		"s3.endpoint is not the URL": func() { write(strings.Replace(config, "https", "ftp", 1), 0o600) },
	} {
		change()
		_, err := spec.Read(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%v, want %q", err, want)
		}
		if strings.Contains(err.Error()+fault.Hint(err), "chmod 600") != (want == "other users can read") {
			t.Errorf("%v (%s): a hint about the mode", err, fault.Hint(err))
		}
	}
}

// directoryWith is directory with the credentials of a target.
func directoryWith(t *testing.T, text, config string) string {
	t.Helper()
	path := directory(t, text)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "target.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
