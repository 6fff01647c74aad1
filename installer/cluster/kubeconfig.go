package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	kubeconfigv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	certutil "k8s.io/client-go/util/cert"

	"airlift/internal/documents"
)

// CheckOne refuses a kubeconfig of another machine that is more than the address and the CA of one cluster and the credentials
// of one user: with it, kubectl would run commands, read files or trust others on this machine.
func CheckOne(kubeconfig []byte) error {
	c, err := embedded(kubeconfig)
	if err != nil {
		return err
	}
	if len(c.Clusters) != 1 || len(c.AuthInfos) != 1 || len(c.Contexts) != 1 {
		return fmt.Errorf("it has %d clusters, %d users and %d contexts, instead of one of each", len(c.Clusters), len(c.AuthInfos), len(c.Contexts))
	}
	if now := c.Contexts[0]; now.Name != c.CurrentContext || now.Context.Cluster != c.Clusters[0].Name || now.Context.AuthInfo != c.AuthInfos[0].Name {
		return errors.New("its current context is not its cluster and its user")
	}
	cluster, user := c.Clusters[0].Cluster, c.AuthInfos[0].AuthInfo
	if _, err := certutil.ParseCertsPEM(cluster.CertificateAuthorityData); err != nil {
		return fmt.Errorf("it has no CA: %w", err)
	}
	if u, err := url.Parse(cluster.Server); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return fmt.Errorf("its server is %q", cluster.Server)
	}
	if user.Token == "" && len(user.ClientCertificateData) == 0 {
		return errors.New("its user has no credentials")
	}
	return nil
}

// CheckEmbedded refuses a kubeconfig of another machine that has more than addresses, CAs and credentials.
func CheckEmbedded(kubeconfig []byte) error {
	_, err := embedded(kubeconfig)
	return err
}

func embedded(kubeconfig []byte) (c kubeconfigv1.Config, err error) {
	text, err := documents.ReadOne(kubeconfig)
	if err != nil {
		return c, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, err
	}
	err = onlyHas("it", c, "kind", "apiVersion", "preferences", "clusters", "users", "contexts", "current-context")
	err = cmp.Or(err, onlyHas("preferences", c.Preferences))
	for _, n := range c.Clusters {
		err = cmp.Or(err, onlyHas(fmt.Sprintf("cluster %q", n.Name), n.Cluster, "server", "certificate-authority-data"))
	}
	for _, n := range c.AuthInfos {
		err = cmp.Or(err, onlyHas(fmt.Sprintf("user %q", n.Name), n.AuthInfo, "client-certificate-data", "client-key-data", "token"))
	}
	for _, n := range c.Contexts {
		err = cmp.Or(err, onlyHas(fmt.Sprintf("context %q", n.Name), n.Context, "cluster", "user", "namespace"))
	}
	return c, err
}

// onlyHas returns an error if a part has a field that is not allowed.
func onlyHas(what string, part any, allowed ...string) error {
	data, err := json.Marshal(part)
	if err != nil {
		return err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("%s has %q: only addresses, CAs and credentials in the file itself are accepted", what, name)
		}
	}
	return nil
}

// WithServer returns a kubeconfig that reaches the cluster of its current context at another URL, or all its clusters if it has
// no such context, as in cluster-info. A user may have added other clusters.
func WithServer(kubeconfig []byte, server string) ([]byte, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	now := cfg.Contexts[cfg.CurrentContext]
	for name, c := range cfg.Clusters {
		if now == nil || now.Cluster == name {
			c.Server = server
		}
	}
	return clientcmd.Write(*cfg)
}

// ServerOf returns the URL of the API server of a kubeconfig's current context; "" if it has none.
func ServerOf(kubeconfig []byte) (string, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return "", fmt.Errorf("reading kubeconfig: %w", err)
	}
	if now := cfg.Contexts[cfg.CurrentContext]; now != nil && cfg.Clusters[now.Cluster] != nil {
		return cfg.Clusters[now.Cluster].Server, nil
	}
	return "", nil
}

// WithServersOf returns a kubeconfig that reaches its clusters at the URLs that another one has for them.
func WithServersOf(kubeconfig, other []byte) ([]byte, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	from, err := clientcmd.Load(other)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	for name, c := range cfg.Clusters {
		if o := from.Clusters[name]; o != nil {
			c.Server = o.Server
		}
	}
	return clientcmd.Write(*cfg)
}
