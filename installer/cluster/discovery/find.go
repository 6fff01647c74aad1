package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/internal/documents"
)

// Cluster is a cluster that passed discovery's checks.
type Cluster struct {
	// Server is the API server's URL with the address that the user gave,
	// such as a virtual IP or a tunnel that is not in cluster-info.
	Server string
	// CA is the trusted part of the cluster's CA bundle in PEM: if hashes
	// were given, only the certificates that match one of them.
	CA []byte
	// Kubeconfig is for the kubelet's TLS bootstrap, credentials included.
	Kubeconfig []byte
	// Warnings name what was not checked.
	Warnings []string
}

// How long to retry failures that may be temporary.
const (
	// defaultTimeout limits discovery if the configuration does not.
	defaultTimeout = config.DefaultDiscoveryTimeout
	// While init is still running, cluster-info may be missing, unreadable
	// for anonymous users, or not signed yet.
	freshGrace = 60 * time.Second
	// The bootstrap signer signs for a new token within about a second, on a
	// slow host within ten.
	signerGrace = 15 * time.Second
	// After boot, a network interface or name server may not be up yet.
	hostGrace = 10 * time.Second
)

// backdate is how far in the past the controller manager sets the start of a kubelet's certificate.
// A host whose clock is further behind cannot use the certificate
// (k8s.io/kubernetes/pkg/controller/certificates/signer).
const backdate = 5 * time.Minute

// Find finds the cluster to join and verifies its identity.
//
// With a token, cluster-info is first fetched from an unverified address. The
// token's signature proves that the sender knows the token; a pinned hash proves
// that a CA in cluster-info belongs to the cluster. All other CAs in it could
// belong to the sender and are not trusted. cluster-info is then fetched again
// over a connection that only the pinned CAs verify, and must be identical.
//
// With a discovery file, the user is responsible for the file and its CA.
//
// Temporary failures (no answer yet, init still running) are retried until
// d.Timeout; all others fail at once.
func Find(ctx context.Context, d config.Discovery, report wait.Report) (*Cluster, error) {
	if d.File != "" {
		return byFile(ctx, d, report)
	}
	return byToken(ctx, d, report)
}

func byToken(ctx context.Context, d config.Discovery, report wait.Report) (*Cluster, error) {
	if err := cluster.CheckToken(d.Token); err != nil {
		return nil, &Error{Malformed, err}
	}
	if err := checkEndpoint(d.APIServerEndpoint); err != nil {
		return nil, err
	}
	pins, err := ParsePins(d.CACertHashes)
	if err != nil {
		return nil, err
	}
	if len(pins) == 0 && !d.UnsafeSkipCAVerification {
		return nil, refuse(Malformed, "pass --discovery-token-ca-cert-hash from the join command, or skip the check with --discovery-token-unsafe-skip-ca-verification",
			"no CA certificate hash was given to verify the cluster")
	}
	server := cluster.ServerURL(d.APIServerEndpoint)
	source := infoSource{server: server, timeout: d.Timeout, report: report}
	first, err := source.fetch(ctx, anyServer(), func(info *corev1.ConfigMap) error { return checkSignature(info, d.Token) })
	if err != nil {
		return nil, err
	}
	listed, err := clusterCA(first.kubeconfig)
	if err != nil {
		return nil, err
	}
	found := &Cluster{Server: server, CA: listed}
	var unpinned []string
	if len(pins) > 0 {
		if found.CA, unpinned, err = pins.split(listed); err != nil {
			return nil, err
		}
	} else {
		found.Warnings = append(found.Warnings,
			"the cluster's CA was not checked against a pinned hash: anyone who knows the token could impersonate the cluster")
	}

	second, err := source.fetch(ctx, signedBy(found.CA), nil)
	if err != nil {
		return nil, explainUnpinned(err, unpinned)
	}
	if len(unpinned) > 0 {
		found.Warnings = append(found.Warnings, fmt.Sprintf(
			"cluster-info lists CA certificates that match no given hash; they are not trusted: %s; if the cluster is rotating its CA, join with the hash of each CA: %s",
			strings.Join(unpinned, ", "), cluster.PrintJoinCommand))
	}
	if second.kubeconfig != first.kubeconfig {
		return nil, refuse(Tampered, "an attacker between this host and the cluster may be changing its answers: do not join from this network",
			"cluster-info from %s changed when it was fetched again over the verified connection", server)
	}
	if err := found.checkClock(second.ahead); err != nil {
		return nil, err
	}
	token := d.TLSBootstrapToken
	token = cmp.Or(token, d.Token)
	if err := cluster.CheckToken(token); err != nil {
		return nil, &Error{Malformed, fmt.Errorf("reading the TLS bootstrap token: %w", err)}
	}
	found.Kubeconfig = pki.BootstrapKubeconfig(server, found.CA, token)
	return found, nil
}

// checkEndpoint requires a host and a port, as in kubeadm.
func checkEndpoint(endpoint string) error {
	const hint = "give the host and port of a control plane's API server, such as 192.0.2.10:6443 or [2001:db8::1]:6443"
	_, port, err := config.SplitEndpoint(endpoint, 0)
	if err != nil {
		return refuse(Malformed, hint, "reading the API server's address: %w", err)
	}
	if port == 0 {
		return refuse(Malformed, hint, "reading the API server's address: %q has no port", endpoint)
	}
	return nil
}

// checkSignature verifies cluster-info's signature for token. Its errors
// distinguish a token without a signature, which may appear soon, from a wrong
// token.
func checkSignature(info *corev1.ConfigMap, token string) error {
	id, secret, _ := strings.Cut(token, ".")
	kubeconfig := info.Data[bootstrapapi.KubeConfigKey]
	signature, ok := info.Data[bootstrapapi.JWSSignatureKeyPrefix+id]
	if !ok {
		grace := freshGrace
		for key := range info.Data {
			if strings.HasPrefix(key, bootstrapapi.JWSSignatureKeyPrefix) {
				grace = signerGrace
			}
		}
		return &mayHeal{grace, refuse(TokenUnknown, cluster.NewTokenHint,
			"the cluster has no token with ID %q: it has expired, or it belongs to another cluster", id)}
	}
	if !jws.DetachedTokenIsValid(signature, kubeconfig, id, secret) {
		return refuse(TokenWrong, "check the part of the token after the dot, or "+cluster.NewTokenHint,
			"the cluster has a token with ID %q, but the secret after the dot does not match", id)
	}
	return nil
}

// clusterCA returns the CA bundle of the kubeconfig in cluster-info.
func clusterCA(kubeconfig string) ([]byte, error) {
	const hint = "inspect it on a control plane: kubectl get configmap -n kube-public cluster-info -o yaml"
	cfg, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return nil, refuse(NotReady, hint, "reading the kubeconfig in cluster-info: %w", err)
	}
	if len(cfg.Clusters) != 1 {
		return nil, refuse(NotReady, hint, "the kubeconfig in cluster-info must have exactly one cluster, and has %d", len(cfg.Clusters))
	}
	var ca []byte
	for _, cluster := range cfg.Clusters {
		ca = cluster.CertificateAuthorityData
	}
	if _, err := certutil.ParseCertsPEM(ca); err != nil {
		return nil, refuse(NotReady, hint, "reading the CA certificate in cluster-info: %w", err)
	}
	return ca, nil
}

// byFile uses a kubeconfig that the user supplies and trusts.
func byFile(ctx context.Context, d config.Discovery, report wait.Report) (*Cluster, error) {
	cfg, err := loadDiscoveryFile(ctx, d)
	if err != nil {
		return nil, err
	}
	current := cfg.Contexts[cfg.CurrentContext]
	name := ""
	if current != nil {
		name = current.Cluster
	}
	selected := cfg.Clusters[name]
	if selected == nil {
		return nil, refuse(Malformed, "set current-context, or leave the cluster's name empty as in cluster-info",
			"the discovery file %q selects no cluster", d.File)
	}
	if selected.InsecureSkipTLSVerify {
		return nil, refuse(Malformed, "remove it and set certificate-authority-data", "the discovery file %q has insecure-skip-tls-verify set", d.File)
	}

	source := infoSource{server: selected.Server, timeout: d.Timeout, report: report, mayBePrivate: true}
	info, err := source.fetch(ctx, signedBy(selected.CertificateAuthorityData), nil)
	if err != nil {
		return nil, err
	}
	if len(selected.CertificateAuthorityData) == 0 && info.kubeconfig != "" {
		if selected.CertificateAuthorityData, err = clusterCA(info.kubeconfig); err != nil {
			return nil, err
		}
	}
	found := &Cluster{Server: selected.Server, CA: selected.CertificateAuthorityData}
	if err := found.checkClock(info.ahead); err != nil {
		return nil, err
	}
	if d.TLSBootstrapToken != "" {
		if err := cluster.CheckToken(d.TLSBootstrapToken); err != nil {
			return nil, &Error{Malformed, fmt.Errorf("reading the TLS bootstrap token: %w", err)}
		}
		found.Kubeconfig = pki.BootstrapKubeconfig(found.Server, found.CA, d.TLSBootstrapToken)
		return found, nil
	}
	if current == nil || !hasCredentials(cfg.AuthInfos[current.AuthInfo]) {
		return nil, refuse(NoCredentials, "pass --tls-bootstrap-token, or add credentials to the file",
			"the discovery file %q has no credentials for the node's certificate request", d.File)
	}
	found.Kubeconfig, err = clientcmd.Write(*cfg)
	return found, err
}

func hasCredentials(a *clientcmdapi.AuthInfo) bool {
	return a != nil && (a.Token != "" || a.TokenFile != "" || len(a.ClientCertificateData) > 0 ||
		a.Username != "" || a.Exec != nil || a.AuthProvider != nil)
}

// loadKubeconfig decodes a kubeconfig. What kubectl would ignore is an error.
func loadKubeconfig(data []byte) (*clientcmdapi.Config, error) {
	if _, err := documents.ReadOne(data); err != nil {
		return nil, err
	}
	return clientcmd.Load(data)
}

// loadKubeconfigFile reads a kubeconfig and embeds the files that it refers to.
func loadKubeconfigFile(path string) (*clientcmdapi.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cfg, err := loadKubeconfig(data)
	if err != nil {
		return nil, err
	}
	for _, c := range cfg.Clusters {
		c.LocationOfOrigin = path
	}
	for _, a := range cfg.AuthInfos {
		a.LocationOfOrigin = path
	}
	return cfg, clientcmdapi.FlattenConfig(cfg)
}

// loadDiscoveryFile reads the kubeconfig and embeds the files that it refers to.
func loadDiscoveryFile(ctx context.Context, d config.Discovery) (*clientcmdapi.Config, error) {
	const hint = "a discovery file is a kubeconfig, such as the one in cluster-info: kubectl get configmap -n kube-public cluster-info -o jsonpath='{.data.kubeconfig}'"
	var cfg *clientcmdapi.Config
	var err error
	if strings.HasPrefix(d.File, "https://") {
		var data []byte
		data, err = download(ctx, d.File, d.Timeout)
		if err == nil {
			err = cluster.CheckEmbedded(data) // the kubelet would run a command in it
		}
		if err == nil {
			cfg, err = loadKubeconfig(data)
		}
	} else {
		cfg, err = loadKubeconfigFile(strings.TrimPrefix(d.File, "file://"))
	}
	if refused := (*Error)(nil); errors.As(err, &refused) {
		return nil, err
	}
	if err != nil {
		return nil, refuse(Malformed, hint, "reading the discovery file %q: %w", d.File, err)
	}
	return cfg, nil
}
