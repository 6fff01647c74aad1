package doctor

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"airlift/installer/redact"
)

// certificates describes the certificates on this host. Keys are never read into the archive:
// the dates and names are enough to see what is wrong.
func (d *Doctor) certificates() []source {
	return []source{{"certificates.txt", redact.Log, func(context.Context) ([]byte, error) {
		var out bytes.Buffer
		for _, pattern := range []string{
			"/etc/kubernetes/pki/*.crt", "/etc/kubernetes/pki/etcd/*.crt", "/etc/kubernetes/*.conf", "/var/lib/kubelet/pki/*",
		} {
			found, _ := filepath.Glob(d.Host.Path(pattern)) // the patterns are valid
			for _, file := range found {
				d.describeCertificates(&out, file)
			}
		}
		return out.Bytes(), nil
	}}}
}

// embedded matches the certificates in a kubeconfig.
var embedded = regexp.MustCompile(`(client-certificate-data|certificate-authority-data): *"?([A-Za-z0-9+/=]+)`)

func (d *Doctor) describeCertificates(out *bytes.Buffer, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintf(out, "%s: %v\n\n", file, err)
		return
	}
	if !strings.HasSuffix(file, ".conf") {
		describePEM(out, file, data, d.began)
		return
	}
	for _, m := range embedded.FindAllSubmatch(data, -1) {
		if plain, err := base64.StdEncoding.DecodeString(string(m[2])); err == nil {
			describePEM(out, file+", "+string(m[1]), plain, d.began)
		}
	}
}

// describePEM describes the certificates in PEM data, and leaves out everything else.
func describePEM(out *bytes.Buffer, name string, data []byte, now time.Time) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			fmt.Fprintf(out, "%s: %v\n\n", name, err)
			continue
		}
		state := "valid"
		switch {
		case now.After(c.NotAfter):
			state = "EXPIRED"
		case now.Before(c.NotBefore):
			state = "NOT VALID YET"
		}
		fmt.Fprintf(out, "%s\n  subject: %s\n  issuer:  %s\n  serial:  %x\n  from:    %s\n  until:   %s (%s)\n  key:     %s\n", name, c.Subject, c.Issuer,
			c.SerialNumber, c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339), state, c.PublicKeyAlgorithm)
		if len(c.DNSNames)+len(c.IPAddresses) > 0 {
			fmt.Fprintf(out, "  names:   %s %v\n", strings.Join(c.DNSNames, " "), c.IPAddresses)
		}
		out.WriteByte('\n')
	}
}
