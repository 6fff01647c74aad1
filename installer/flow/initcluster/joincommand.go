package initcluster

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/images/release"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// joinTokenLife is the minimum remaining lifetime of an existing token. A repeated init prints such
// a token in the join command and creates no new token.
const joinTokenLife = 10 * time.Minute

// nodeCredentials are what other nodes need to join: the token, and for control
// planes the key of the uploaded certificates.
type nodeCredentials struct {
	*node.Machine
	node           *phases.Node
	content        *phases.Content
	api            *phases.API
	options        phases.InitOptions
	token          string // the token in the join command
	certificateKey string // key of the uploaded certificates
}

// uploadCerts stores the encrypted certificates in the cluster.
func (n *nodeCredentials) uploadCerts(ctx context.Context) error {
	if !n.node.Config.UploadCerts {
		n.Console.Note("skipped: --upload-certs was not given")
		return nil
	}
	if n.certificateKey == "" {
		n.certificateKey = cluster.NewCertificateKey()
	}
	changed, err := n.api.Client.UploadCerts(ctx, n.Files(), n.node.Config, n.certificateKey)
	n.Changed(changed)
	if err != nil {
		return err
	}
	if n.node.Plan.OnePhase && !n.options.SkipCertificateKeyPrint {
		n.Console.Summary("The certificate key, for join --control-plane --certificate-key:\n\n    " + n.certificateKey + "\n")
	}
	return n.Applied(n.api.Client.Apply(ctx, render.UploadCertsRBAC()...))
}

// bootstrapToken creates the token. A repeated init uses an existing one.
func (n *nodeCredentials) bootstrapToken(ctx context.Context, l desired.List) error {
	if n.node.Observed.IsNode && !n.options.UserToken {
		token, err := n.api.Client.FindJoinToken(ctx, joinTokenLife)
		if err != nil {
			return err
		}
		n.token = token
	}
	if n.token == "" {
		if err := n.Applied(n.api.Client.EnsureTokens(ctx, n.node.Config.BootstrapTokens)); err != nil {
			return err
		}
		if len(n.node.Config.BootstrapTokens) > 0 {
			n.token = n.node.Config.BootstrapTokens[0].Token
		}
	}
	if n.node.Plan.OnePhase && !n.options.SkipTokenPrint && n.token != "" {
		n.Console.Summary("The token, for join --token:\n\n    " + n.token + "\n")
	}
	return n.api.Apply(ctx, l)
}

// serverURL returns the URL of the API for other nodes. If a phase runs alone, it reads the URL
// from admin.conf, so the user need not repeat init's flags or file.
func (n *nodeCredentials) serverURL() string {
	if n.node.Plan.OnePhase {
		if admin, err := cluster.Load(n.Existing.Path(node.AdminConf), ""); err == nil {
			return admin.Server
		}
	}
	return n.node.Config.ServerURL()
}

// bootstrapObjects returns all objects that nodes need to join, except the
// token.
func (n *nodeCredentials) bootstrapObjects(c *config.Config) ([]runtime.Object, error) {
	ca, err := fs.ReadFile(n.Files(), strings.TrimPrefix(path.Join(c.CertificatesDir, "ca.crt"), "/"))
	if err != nil {
		return nil, err
	}
	shared := *c
	shared.ControlPlaneEndpoint = strings.TrimPrefix(n.serverURL(), "https://")
	return append(render.BootstrapRBAC(c), render.ClusterInfo(&shared, ca)...), nil
}

// show prints how to use the cluster, and how to add workers and
// control planes.
func (n *nodeCredentials) show(ctx context.Context) error {
	ca, err := os.ReadFile(n.Host.Path(path.Join(n.node.Config.CertificatesDir, "ca.crt")))
	if err != nil {
		return err
	}
	hashes, err := pki.CAHashes(ca)
	if err != nil {
		return err
	}
	if n.token == "" {
		if n.token, err = n.api.Client.FindJoinToken(ctx, joinTokenLife); err != nil {
			return err
		}
	}
	s := initSummary{
		version:   n.node.Config.KubernetesVersion,
		unchanged: n.Changes == 0,
		network:   n.node.Config.CNI,
	}
	if n.node.Config.ControlPlaneEndpoint != "" {
		s.certificates = n.node.Config.CertificatesDir
	}
	token, key := n.token, n.certificateKey
	if n.options.SkipTokenPrint {
		token = "<TOKEN>"
	}
	if n.options.SkipCertificateKeyPrint && key != "" {
		key = "<CERTIFICATE KEY>"
	}
	if n.token != "" {
		endpoint, err := n.api.Client.Reachable(ctx, n.serverURL())
		if err != nil {
			return err
		}
		s.join = cluster.JoinCommand(endpoint, token, hashes...)
		other, err := n.otherPodNetwork(ctx)
		if err != nil {
			return err
		}
		if other {
			s.join += cluster.OtherPodNetwork
		}
	}
	if n.node.Config.UploadCerts {
		s.key = key
	}
	n.Console.Summary(s.String())
	return nil
}

// otherPodNetwork reports whether the cluster has another pod network than the bundle's. If a phase
// runs alone, it asks the cluster, so the user need not repeat init's --cni.
func (n *nodeCredentials) otherPodNetwork(ctx context.Context) (bool, error) {
	if n.node.Plan.Content().CNI != release.Flannel {
		return false, nil
	}
	if !n.node.Plan.OnePhase {
		return n.node.Config.CNI == "none", nil
	}
	has, err := n.api.Client.NodeObjects().HasFlannel(ctx)
	return !has, err
}

// An initSummary is the text that init prints at its end.
type initSummary struct {
	version, join, key, network string
	// certificates is the directory of the certificates that another control plane needs, or empty
	// if the cluster cannot have one.
	certificates string
	unchanged    bool
}

func (s initSummary) String() string {
	var b strings.Builder
	if s.unchanged {
		fmt.Fprintf(&b, "Kubernetes %s is already running here. Nothing was changed.\n", s.version)
	} else {
		fmt.Fprintf(&b, "Kubernetes %s is running on this host.\n", s.version)
	}
	b.WriteString("\nUse it as root:\n\n    export KUBECONFIG=" + node.AdminConf + "\n    kubectl get nodes\n    airlift status\n")
	if s.network == "none" {
		b.WriteString("\nInstall a pod network next; the node is NotReady until then.\n")
	}
	if s.join == "" {
		b.WriteString("\nTo add nodes, create a token: ./install token create --print-join-command\n")
		return b.String()
	}
	b.WriteString("\nTo add a worker, copy this file to it and run there as root:\n\n    " + s.join + "\n")
	switch {
	case s.key != "":
		b.WriteString("\nTo add a control plane, copy this file to it and run there as root:\n\n    " + s.join + " --control-plane --certificate-key " + s.key +
			"\n\nThe certificates that it needs are stored in the cluster for two hours,\nencrypted with this key. Keep the key secret.\n" +
			"After two hours, upload them again: ./install init phase upload-certs --upload-certs\n")
	case s.certificates != "":
		b.WriteString("\nTo add a control plane, copy to it this file and the certificates from " + s.certificates + "\n" +
			"(ca, sa, front-proxy-ca and etcd/ca, .crt or .pub and .key). Then run there as root:\n\n    " + s.join + " --control-plane\n")
	}
	return b.String()
}
