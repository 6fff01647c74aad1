package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// Credentials are what hosts need to join. They are secret.
type Credentials struct {
	Token             string    `json:"token"`
	CACertHashes      []string  `json:"caCertHashes,omitempty"` // sha256:hex
	CertificateKey    string    `json:"certificateKey,omitempty"`
	APIServerEndpoint string    `json:"apiServerEndpoint,omitempty"` // host:port
	APIServers        []string  `json:"apiServers,omitempty"`        // host:port of each
	Expires           time.Time `json:"expires,omitzero"`            // of the token
}

// Connect returns a client with the rights of an administrator on a control plane.
func Connect(h *host.Host) (*cluster.Client, error) {
	c, err := cluster.Load(h.Path(node.AdminConf), "")
	return c, fault.Wrap(err, fault.Failure, "run it on a control plane as root")
}

// CreateCredentials creates a token that lives for ttl. For control planes it also uploads the certificates of h.
func CreateCredentials(ctx context.Context, client *cluster.Client, h *host.Host, ttl time.Duration, controlPlane bool) (*Credentials, error) {
	hashes, err := pki.CAHashes(client.CA)
	if err != nil {
		return nil, err
	}
	endpoint, err := client.Reachable(ctx, client.Server)
	if err != nil {
		return nil, err
	}
	made := &Credentials{CACertHashes: hashes, APIServerEndpoint: endpoint, Expires: time.Now().Add(ttl).UTC().Truncate(time.Second)}
	if controlPlane {
		made.CertificateKey = cluster.NewCertificateKey()
		if _, err := client.UploadCerts(ctx, os.DirFS(h.Path("/")), node.Observe(h).PKI(), made.CertificateKey); err != nil {
			return nil, err
		}
		if _, err := client.Apply(ctx, render.UploadCertsRBAC()...); err != nil {
			return nil, err
		}
	}
	servers, err := client.APIServers(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range servers {
		made.APIServers = append(made.APIServers, a.String())
	}
	if made.Token, err = cluster.NewToken(); err != nil {
		return nil, err
	}
	return made, client.CreateToken(ctx, config.BootstrapToken{
		Token: made.Token, Expires: made.Expires, Description: "join of hosts by 'cluster apply', which deletes it",
		Usages: []string{"signing", "authentication"}, Groups: []string{config.NodeTokenGroup},
	})
}

// DeleteCredentials deletes the token, and the certificates if they were uploaded with the key. It returns what existed.
func DeleteCredentials(ctx context.Context, client *cluster.Client, made Credentials) (deleted []string, err error) {
	deleted = []string{}
	if err := cluster.CheckToken(made.Token); err != nil {
		return deleted, err
	}
	err = client.DeleteToken(ctx, made.Token)
	switch {
	case err == nil:
		id, _, _ := strings.Cut(made.Token, ".")
		deleted = append(deleted, "token "+id)
	case !errors.Is(err, cluster.ErrNoToken):
		return deleted, err
	}
	if made.CertificateKey == "" {
		return deleted, nil
	}
	had, err := client.DeleteCerts(ctx, made.CertificateKey)
	if had {
		deleted = append(deleted, "certificates")
	}
	return deleted, err
}
