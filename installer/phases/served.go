package phases

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"os"
	"path"
	"strings"
	"time"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/internal/dialer"
)

// reloadTimeout is more than the minute in which an API server reads its certificate again if it missed the change
// (FileRefreshDuration of k8s.io/apiserver).
const reloadTimeout = 90 * time.Second

// WaitServed waits until the API server of a control plane serves the certificate in its file. It reads that again by itself, and is
// restarted if it does not.
func WaitServed(ctx context.Context, m *node.Machine, c *config.Config, restart func(context.Context) error) error {
	err := waitServed(ctx, m, c)
	if err == nil || ctx.Err() != nil {
		return err
	}
	m.Console.Warn("the API server does not read its certificate again: it is restarted (%v)", err)
	if err := restart(ctx); err != nil {
		return err
	}
	return waitServed(ctx, m, c)
}

func waitServed(ctx context.Context, m *node.Machine, c *config.Config) error {
	data, err := os.ReadFile(m.Host.Path(path.Join(c.CertificatesDir, "apiserver.crt")))
	if err != nil {
		return err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return errors.New("apiserver.crt has no certificate")
	}
	address := strings.TrimPrefix(c.LocalURL(), "https://")
	w := wait.For{What: "the API server to use its new certificate", Timeout: reloadTimeout, Attempt: 10 * time.Second, Report: m.Report}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		conn, err := dialer.Dial(ctx, "tcp", address)
		if err != nil {
			return false, err.Error(), nil
		}
		defer conn.Close()
		client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // its certificate is compared with the file
		if err := client.HandshakeContext(ctx); err != nil {
			return false, err.Error(), nil
		}
		served := client.ConnectionState().PeerCertificates
		return len(served) > 0 && bytes.Equal(served[0].Raw, block.Bytes), "it serves another certificate", nil
	})
}
