package cluster

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"time"

	"airlift/installer/cluster/health"
	"airlift/internal/fault"
)

const (
	clockHint = "compare this host's clock with the other hosts': date; to correct it: timedatectl set-time 'YYYY-MM-DD HH:MM:SS'"
	renewHint = "./install certs renew all --restart; on a node that is not adopted yet, with the tool that made it: kubeadm certs renew all"
)

// Answering fails unless the API server answers, and accepts this client, in one attempt. The error has the exit code and names
// the cause: a certificate that ended, another CA, or no connection.
func Answering(ctx context.Context, c *Client, code fault.Code) error {
	status := 0
	err := c.API.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).StatusCode(&status).Error()
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case err == nil, ctx.Err() != nil:
		return ctx.Err()
	case status == http.StatusUnauthorized:
		return refused(c, code)
	case status != 0: // it answers; what it forbids is reported where it is needed
		return nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		which := "the certificate of the API server"
		if invalid.Cert.IsCA {
			which = "the CA of the API server"
		}
		what, hint := "ended on "+day(invalid.Cert.NotAfter), "renew it on that control plane: "+renewHint
		if time.Now().Before(invalid.Cert.NotBefore) {
			what, hint = "begins on "+day(invalid.Cert.NotBefore), clockHint
		}
		if invalid.Cert.IsCA && time.Now().After(invalid.Cert.NotAfter) {
			hint = "see ./install docs certificates: all certificates have to be made again with a new CA"
		}
		return fault.New(code, "%s at %s %s, and this host's clock is at %s", which, c.Server, what, day(time.Now())).Hint(hint)
	case errors.As(err, &unknown):
		return fault.New(code, "the certificate of the API server at %s is not signed by the CA in the kubeconfig", c.Server).
			Hint("another cluster answers there, or its CA was replaced: write the CA of a control plane to certificate-authority-data")
	case errors.As(err, &name):
		return fault.New(code, "the certificate of the API server at %s is for other names: %w", c.Server, name).
			Hint("use one of these names in the kubeconfig; or add this one to apiServer.certSANs: ./install reconfigure --help")
	}
	return fault.New(code, "the API server at %s does not answer: %w", c.Server, err).Hint(health.KubeletHint + "; the logs of the containers are below /var/log/pods")
}

// refused is the error for a client that the API server does not accept.
func refused(c *Client, code fault.Code) error {
	block, _ := pem.Decode(c.certificate)
	if block != nil {
		is, err := x509.ParseCertificate(block.Bytes)
		switch now := time.Now(); {
		case err != nil:
		case now.After(is.NotAfter):
			return fault.New(code, "the API server at %s refuses this client: its certificate, for %s, ended on %s, and this host's clock is at %s", c.Server, is.Subject.CommonName, day(is.NotAfter), day(now)).
				Hint("renew it on a control plane: " + renewHint + "; for a kubelet, see ./install docs certificates")
		case now.Before(is.NotBefore):
			return fault.New(code, "the API server at %s refuses this client: its certificate, for %s, begins on %s, and this host's clock is at %s", c.Server, is.Subject.CommonName, day(is.NotBefore), day(now)).Hint(clockHint)
		}
	}
	return fault.New(code, "the API server at %s does not accept the credentials in the kubeconfig", c.Server).
		Hint("use the kubeconfig of this cluster, with --kubeconfig; if the certificate is valid, compare the clocks of the hosts: date")
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
