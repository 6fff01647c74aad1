package pemfile_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"airlift/internal/documents/pemfile"
	"airlift/scripts/fixtures/rig"
)

// openssl runs a command of OpenSSL in dir.
func openssl(t *testing.T, dir, command string) {
	t.Helper()
	cmd := exec.Command(rig.Tool(t, "openssl"), strings.Fields(command)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("openssl %s: %v\n%s", command, err, out)
	}
}

// Each file is made by OpenSSL. Where the hint is a command of OpenSSL that asks for no password,
// it is run, and its result must be PEM.
func TestFilesOfOpenSSL(t *testing.T) {
	dir := t.TempDir()
	for _, command := range []string{
		"ecparam -name prime256v1 -genkey -noout -out ec.key",
		"genrsa -out rsa.key 2048",
		"req -x509 -key ec.key -subj /CN=ca -out cert.pem",
		"req -new -key ec.key -subj /CN=ca -out request.pem",
		"x509 -in cert.pem -outform der -out cert.der",
		"x509 -in cert.pem -trustout -out trusted.pem",
		"pkey -in ec.key -outform der -out key.der",
		"rsa -in rsa.key -traditional -outform der -out rsa.der",
		"pkcs8 -topk8 -in ec.key -passout pass:secret -out encrypted.key",
		"pkcs8 -topk8 -in ec.key -passout pass:secret -outform der -out encrypted.der",
		"rsa -in rsa.key -aes256 -traditional -passout pass:secret -out legacy.key",
		"pkcs12 -export -inkey ec.key -in cert.pem -passout pass:secret -out both.p12",
		"crl2pkcs7 -nocrl -certfile cert.pem -out certs.p7b",
		"crl2pkcs7 -nocrl -certfile cert.pem -outform der -out certs.p7c",
		"pkey -in ec.key -pubout -out public.pem",
		"pkey -in ec.key -pubout -outform der -out public.der",
		"ecparam -name prime256v1 -out parameters.pem",
	} {
		openssl(t, dir, command)
	}
	for _, c := range []struct {
		file     string
		want     pemfile.Kind
		is, hint string
	}{
		{"cert.der", pemfile.Certificate, "a certificate in DER", "openssl x509 -inform der"},
		{"cert.der", pemfile.PrivateKey, "a certificate, not a private key", "private key"},
		{"trusted.pem", pemfile.Certificate, "trusted format", "openssl x509 -in"},
		{"certs.p7b", pemfile.Certificate, "PKCS#7", "openssl pkcs7 -print_certs"},
		{"certs.p7c", pemfile.Certificate, "PKCS#7", "openssl pkcs7 -inform der"},
		{"both.p12", pemfile.Certificate, "PKCS#12", "openssl pkcs12 -nokeys"},
		{"both.p12", pemfile.PrivateKey, "PKCS#12", "openssl pkcs12 -nocerts"},
		{"request.pem", pemfile.Certificate, "signing request", "signed first"},
		{"ec.key", pemfile.Certificate, "a private key, not a certificate", "certificate"},
		{"cert.pem", pemfile.PrivateKey, "a certificate, not a private key", "private key"},
		{"cert.pem", pemfile.PublicKey, "a certificate, not a public key", "public key"},
		{"key.der", pemfile.PrivateKey, "a private key in DER", "openssl pkey -inform der"},
		{"rsa.der", pemfile.PrivateKey, "a private key in DER", "openssl pkey -inform der"},
		{"rsa.der", pemfile.Certificate, "a private key, not a certificate", "certificate"},
		{"encrypted.key", pemfile.PrivateKey, "an encrypted private key", "decrypt it: openssl pkey"},
		{"legacy.key", pemfile.PrivateKey, "an encrypted private key", "decrypt it: openssl pkey"},
		{"encrypted.der", pemfile.PrivateKey, "an encrypted private key in DER", "decrypt it: openssl pkey -inform der"},
		{"encrypted.key", pemfile.Certificate, "a private key, not a certificate", "certificate"},
		{"public.der", pemfile.PublicKey, "a public key in DER", "openssl pkey -pubin"},
		{"ec.key", pemfile.PublicKey, "a private key, not a public key", "openssl pkey -pubout"},
		{"parameters.pem", pemfile.PrivateKey, "EC PARAMETERS", "private key"},
	} {
		path := filepath.Join(dir, c.file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		e := pemfile.Explain(content, c.want)
		if !strings.Contains(e.Error(), c.is) || !strings.Contains(e.Hint(path), c.hint) {
			t.Errorf("%s as %s: %q (hint %q)", c.file, c.want, e, e.Hint(path))
		}
		_, command, ok := strings.Cut(e.Hint(path), ": openssl ")
		if ok && !strings.Contains(command, "pkcs12") && !strings.Contains(e.Error(), "encrypted") {
			openssl(t, dir, command)
			_, result, _ := strings.Cut(command, "-out ")
			if text, err := os.ReadFile(result); err != nil || !strings.Contains(string(text), "-----BEGIN ") {
				t.Errorf("%s: %s: %q, %v", c.file, command, text, err)
			}
		}
	}
}

func TestTexts(t *testing.T) {
	const block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	var utf16le []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + block)) {
		utf16le = binary.LittleEndian.AppendUint16(utf16le, unit)
	}
	for _, c := range []struct{ content, is string }{
		{"", "it is empty"},
		{" \n", "it is empty"},
		{string(utf16le), "UTF-16"},
		{base64.StdEncoding.EncodeToString([]byte(block)), "base64"},
		{strings.ReplaceAll("    "+block, "\n", "\n    "), "damaged"},
		{"-----BEGIN CERTIFICATE-----\nAAAA\n", "damaged"},
		{block, "cannot be read"},
		{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\n", "a key of age"},
		{"ssh-ed25519 AAAA me@example\n", "SSH"},
		{"PuTTY-User-Key-File-3: ssh-ed25519\n", "PuTTY"},
		{"\xfe\xed\xfe\xed\x00\x00\x00\x02", "Java keystore"},
		{"hello", "it contains no PEM certificate"},
	} {
		e := pemfile.Explain([]byte(c.content), pemfile.Certificate)
		if !strings.Contains(e.Error(), c.is) || (e.Hint("a") == "") != (c.content == "hello") {
			t.Errorf("%.20q: %q (hint %q), want %q", c.content, e, e.Hint("a"), c.is)
		}
	}
	for n := range 40 { // no content makes it fail
		_ = pemfile.Explain([]byte(fmt.Sprintf("\x30%c%s", n*7, strings.Repeat("\x82", n))), pemfile.PrivateKey)
	}
}
